; The installer for Windows: for this user, without an administrator. `dev.py package exe` compiles it
; with VERSION, NUMBERS (four, for Properties), paths, and DOCUMENTS (a generated file).
;
;   Tokonoma-x.y.z-setup.exe /S /D=C:\folder    installs silently; /D is the last, without quotes
;   uninstall.exe /S [/REMOVEDATA]              uninstalls silently; keeps data without the option
; Status: 0 done, 1 cancelled, 2 failed, 3 a folder of others, 4 not enough space, 5 the app is open.

Unicode true
Target amd64-unicode
!include MUI2.nsh
!include LogicLib.nsh
!include FileFunc.nsh
!include WinVer.nsh
!include "${FORMER}"

!define CLASSES "Software\Classes"
!define TYPE "Tokonoma.gguf"
!define APPLICATION "${CLASSES}\Applications\Tokonoma.exe"
!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\Tokonoma"
!define CAPABILITIES "Software\Tokonoma\Capabilities"
!define OPEN '"$INSTDIR\Tokonoma.exe" "%1"'

Name "Tokonoma"
OutFile "${OUT}"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\Tokonoma"
InstallDirRegKey HKCU "Software\Tokonoma" "Folder"
ManifestDPIAware true
ManifestSupportedOS Win10
XPStyle on
BrandingText " "
AllowSkipFiles off
SetDateSave off ; the same bundle gives the same installer

VIProductVersion "${NUMBERS}"
VIAddVersionKey "ProductName" "Tokonoma"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Tokonoma Setup"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

!define MUI_ICON "${ICON}"
!define MUI_UNICON "${ICON}"
!define MUI_ABORTWARNING
!define MUI_FINISHPAGE_RUN "$INSTDIR\Tokonoma.exe"
!insertmacro MUI_PAGE_LICENSE "${LICENCE}"
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!define MUI_COMPONENTSPAGE_NODESC
!define MUI_PAGE_CUSTOMFUNCTION_SHOW un.hideSpace
!insertmacro MUI_UNPAGE_COMPONENTS
!insertmacro MUI_UNPAGE_INSTFILES
!include "${TEXTS}"

!macro FAIL status text
  SetErrorLevel ${status}
  MessageBox MB_OK|MB_ICONSTOP "${text}" /SD IDOK
  Quit
!macroend

; A program that runs cannot be opened for writing.
!macro WAIT_UNTIL_CLOSED
  ${DoWhile} ${FileExists} "$INSTDIR\Tokonoma.exe"
    ClearErrors
    FileOpen $0 "$INSTDIR\Tokonoma.exe" a
    ${IfNot} ${Errors}
      FileClose $0
      ${ExitDo}
    ${EndIf}
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(Open)" /SD IDCANCEL IDRETRY +3
    SetErrorLevel 5
    Quit
  ${Loop}
!macroend

; Deletes a type of file unless another copy of the app, such as a portable one, has it now.
!macro DELETE_OWN key
  ReadRegStr $0 HKCU "${key}\shell\open\command" ""
  ${If} $0 == '${OPEN}'
    DeleteRegKey HKCU "${key}"
  ${EndIf}
!macroend

Function .onInit
  ${IfNot} ${AtLeastWin10}
    !insertmacro FAIL 2 "$(Old)"
  ${EndIf}
FunctionEnd

Function .onInstFailed
  !insertmacro RestoreFormer
FunctionEnd

Section "Tokonoma"
  !insertmacro WAIT_UNTIL_CLOSED
  ${IfNot} ${FileExists} "$INSTDIR\Tokonoma.exe"
  ${AndIf} ${FileExists} "$INSTDIR\_internal\*.*"
    !insertmacro FAIL 3 "$(Others)"
  ${EndIf}
  CreateDirectory "$INSTDIR"
  ${GetRoot} "$INSTDIR" $0
  ${DriveSpace} "$0\" "/D=F /S=M" $1
  SectionGetSize 0 $2
  IntOp $2 $2 / 1024
  ${If} $1 < $2
    !insertmacro FAIL 4 "$(Space)"
  ${EndIf}

  SetOutPath "$INSTDIR"
  !insertmacro KeepFormer "$(Open)"
  File /r /x uninstall.exe "${BUNDLE}/*"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  CreateShortcut "$SMPROGRAMS\Tokonoma.lnk" "$INSTDIR\Tokonoma.exe"

  WriteRegStr HKCU "Software\Tokonoma" "Folder" "$INSTDIR"
  WriteRegStr HKCU "${CLASSES}\${TYPE}" "" "$(Kind)"
  WriteRegStr HKCU "${CLASSES}\${TYPE}\DefaultIcon" "" '"$INSTDIR\Tokonoma.exe",0'
  WriteRegStr HKCU "${CLASSES}\${TYPE}\shell\open\command" "" '${OPEN}'
  WriteRegStr HKCU "${CLASSES}\.gguf\OpenWithProgids" "${TYPE}" ""
  ReadRegStr $0 HKCR ".gguf" ""
  ${If} $0 == "" ; another program that opens them stays the one that does
    WriteRegStr HKCU "${CLASSES}\.gguf" "" "${TYPE}"
  ${EndIf}
  WriteRegStr HKCU "${APPLICATION}\shell\open\command" "" '${OPEN}'
  WriteRegStr HKCU "${APPLICATION}" "FriendlyAppName" "Tokonoma"
  !define DOCUMENT `WriteRegStr HKCU "${APPLICATION}\SupportedTypes"`
  !include "${DOCUMENTS}"
  WriteRegStr HKCU "${CAPABILITIES}" "ApplicationName" "Tokonoma"
  WriteRegStr HKCU "${CAPABILITIES}" "ApplicationDescription" "$(About)"
  WriteRegStr HKCU "${CAPABILITIES}\FileAssociations" ".gguf" "${TYPE}"
  WriteRegStr HKCU "Software\RegisteredApplications" "Tokonoma" "${CAPABILITIES}"

  WriteRegStr HKCU "${UNINSTALL}" "DisplayName" "Tokonoma"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayIcon" '"$INSTDIR\Tokonoma.exe",0'
  WriteRegStr HKCU "${UNINSTALL}" "Publisher" "Tokonoma"
  WriteRegStr HKCU "${UNINSTALL}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  SectionGetSize 0 $0
  WriteRegDWORD HKCU "${UNINSTALL}" "EstimatedSize" $0
  WriteRegDWORD HKCU "${UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL}" "NoRepair" 1
  ${RefreshShellIcons}
SectionEnd

Function un.onInit
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/REMOVEDATA" $1
  ${IfNot} ${Errors}
    SectionSetFlags 1 ${SF_SELECTED}
  ${EndIf}
FunctionEnd

; The page says how much space an installation needs, which is none here.
Function un.hideSpace
  FindWindow $0 "#32770" "" $HWNDPARENT
  GetDlgItem $0 $0 1023
  ShowWindow $0 ${SW_HIDE}
FunctionEnd

Section "un.Tokonoma"
  SectionIn RO
  !insertmacro WAIT_UNTIL_CLOSED
  ; Only what the installer put there: other files in the folder stay.
  Delete "$INSTDIR\Tokonoma.exe"
  Delete "$INSTDIR\README.txt"
  Delete "$INSTDIR\LICENSE.txt"
  Delete "$INSTDIR\uninstall.exe"
  RMDir /r "$INSTDIR\_internal"
  RMDir /r "$INSTDIR\_internal.deleted"
  RMDir /r "$INSTDIR\former"
  RMDir "$INSTDIR"
  Delete "$SMPROGRAMS\Tokonoma.lnk"

  !insertmacro DELETE_OWN "${CLASSES}\${TYPE}"
  !insertmacro DELETE_OWN "${APPLICATION}"
  ReadRegStr $1 HKCU "${CLASSES}\${TYPE}\shell\open\command" ""
  ${If} $1 == "" ; the type is gone
    ReadRegStr $0 HKCU "${CLASSES}\.gguf" ""
    ${If} $0 == "${TYPE}"
      DeleteRegValue HKCU "${CLASSES}\.gguf" ""
    ${EndIf}
    DeleteRegValue HKCU "${CLASSES}\.gguf\OpenWithProgids" "${TYPE}"
    DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf\OpenWithProgids"
    DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf"
  ${EndIf}
  DeleteRegValue HKCU "Software\RegisteredApplications" "Tokonoma"
  DeleteRegKey HKCU "Software\Tokonoma"
  DeleteRegKey HKCU "${UNINSTALL}"
  ${RefreshShellIcons}
SectionEnd

Section /o "un.$(Data)"
  RMDir /r "$LOCALAPPDATA\Tokonoma"
SectionEnd
