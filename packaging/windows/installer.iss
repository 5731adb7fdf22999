; Inno Setup: one file that installs build\bundle\Tokonoma for this user, without an administrator.
;   iscc /DVersion=0.1.0 packaging\windows\installer.iss
; Not run on the machines this was written on.

#ifndef Version
  #error Give the version: iscc /DVersion=0.1.0 installer.iss
#endif

[Setup]
AppId={{5B8E7C34-8D0B-4E0C-9A51-3C3B6B1E7F42}
AppName=Tokonoma
AppVersion={#Version}
AppVerName=Tokonoma {#Version}
AppPublisher=Tokonoma
DefaultDirName={autopf}\Tokonoma
DisableProgramGroupPage=yes
PrivilegesRequired=lowest
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
MinVersion=10.0.17763
OutputDir=..\..\build\bundle
OutputBaseFilename=Tokonoma-{#Version}-setup
Compression=lzma2/max
SolidCompression=yes
ChangesAssociations=yes
UninstallDisplayIcon={app}\Tokonoma.exe
LicenseFile=..\..\LICENSE
WizardStyle=modern

[Files]
Source: "..\..\build\bundle\Tokonoma\*"; DestDir: "{app}"; Excludes: "register.ps1"; Flags: recursesubdirs ignoreversion

[InstallDelete]
; Libraries of an earlier version must not stay beside those of this one.
Type: filesandordirs; Name: "{app}\_internal"

[Icons]
Name: "{autoprograms}\Tokonoma"; Filename: "{app}\Tokonoma.exe"

[Registry]
Root: HKA; Subkey: "Software\Classes\Tokonoma.gguf"; ValueType: string; ValueData: "Language model"; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\Tokonoma.gguf\DefaultIcon"; ValueType: string; ValueData: """{app}\Tokonoma.exe"",0"
Root: HKA; Subkey: "Software\Classes\Tokonoma.gguf\shell\open\command"; ValueType: string; ValueData: """{app}\Tokonoma.exe"" ""%1"""
Root: HKA; Subkey: "Software\Classes\.gguf\OpenWithProgids"; ValueType: string; ValueName: "Tokonoma.gguf"; ValueData: ""; Flags: uninsdeletevalue
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe"; Flags: uninsdeletekey
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\shell\open\command"; ValueType: string; ValueData: """{app}\Tokonoma.exe"" ""%1"""
; Documents that "Open with" offers it for; it opens none of them by default.
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".pdf"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".docx"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".odt"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".rtf"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".pptx"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".odp"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".xlsx"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".ods"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".epub"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".txt"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".md"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".csv"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".tsv"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".json"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".log"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".html"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".htm"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".mhtml"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".eml"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".ipynb"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".srt"; ValueData: ""
Root: HKA; Subkey: "Software\Classes\Applications\Tokonoma.exe\SupportedTypes"; ValueType: string; ValueName: ".vtt"; ValueData: ""

[Run]
Filename: "{app}\Tokonoma.exe"; Description: "Open Tokonoma"; Flags: nowait postinstall skipifsilent
