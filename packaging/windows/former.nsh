; NSIS macros: the version that is installed stays, whole, until the new one has answered once.
;
; It is moved into the folder "former" of the installation, from where it can be started. The app
; removes that folder after its first answer (app/updates/history.py), so where it is there, the
; version beside it has not answered, and only that one is replaced. Whenever the installer is
; killed, one of both is whole.
;
;   Section: SetOutPath $INSTDIR, !insertmacro KeepFormer "what to say when it runs", then the files
;   Function .onInstFailed: !insertmacro RestoreFormer
;   Uninstaller: RMDir /r "$INSTDIR\former"

!include LogicLib.nsh

!macro KeepFormer open
  ClearErrors
  ${If} ${FileExists} "$INSTDIR\former\_internal\*.*"
  ${AndIf} ${FileExists} "$INSTDIR\former\Tokonoma.exe"
    ${If} ${FileExists} "$INSTDIR\_internal\*.*" ; it has not answered, or was not installed wholly
      Rename "$INSTDIR\_internal" "$INSTDIR\_internal.deleted" ; fails where a program runs from it
    ${EndIf}
  ${ElseIf} ${FileExists} "$INSTDIR\_internal\*.*"
  ${AndIf} ${FileExists} "$INSTDIR\Tokonoma.exe"
    RMDir /r "$INSTDIR\former"
    CreateDirectory "$INSTDIR\former"
    CopyFiles /SILENT "$INSTDIR\Tokonoma.exe" "$INSTDIR\former"
    ${IfNot} ${Errors}
      Rename "$INSTDIR\_internal" "$INSTDIR\former\_internal"
    ${EndIf}
  ${EndIf}
  ${If} ${Errors}
    SetErrorLevel 5
    Abort "${open}"
  ${EndIf}
  RMDir /r "$INSTDIR\_internal.deleted"
  RMDir /r "$INSTDIR\_internal"
!macroend

!macro RestoreFormer
  ${If} ${FileExists} "$INSTDIR\former\_internal\*.*"
  ${AndIf} ${FileExists} "$INSTDIR\former\Tokonoma.exe"
    RMDir /r "$INSTDIR\_internal"
    ClearErrors
    CopyFiles /SILENT "$INSTDIR\former\Tokonoma.exe" "$INSTDIR"
    ${IfNot} ${Errors}
      Rename "$INSTDIR\former\_internal" "$INSTDIR\_internal"
    ${EndIf}
    ${IfNot} ${Errors}
      RMDir /r "$INSTDIR\former"
    ${EndIf}
  ${EndIf}
!macroend
