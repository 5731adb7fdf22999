# Adds Tokonoma to this user's Start menu and opens .gguf files with it; needs no administrator.
#   .\register.ps1              add it (again after the folder was moved)
#   .\register.ps1 -Remove      take it away; conversations, models and settings stay
# Not run on the machines this was written on.
param([switch]$Remove)
$ErrorActionPreference = 'Stop'

$program = Join-Path $PSScriptRoot 'Tokonoma.exe'
$classes = 'HKCU:\Software\Classes'
$kind = 'Tokonoma.gguf'
# Documents that "Open with" offers it for; it opens none of them by default.
$documents = -split '@DOCUMENTS@'
$shortcut = Join-Path ([Environment]::GetFolderPath('Programs')) 'Tokonoma.lnk'

function Set-Default($path, $value) {
    New-Item -Path $path -Force | Out-Null
    Set-ItemProperty -Path $path -Name '(default)' -Value $value
}

if ($Remove) {
    foreach ($path in "$classes\$kind", "$classes\Applications\Tokonoma.exe") {
        if (Test-Path $path) { Remove-Item -Path $path -Recurse }
    }
    $list = "$classes\.gguf\OpenWithProgids"
    if (Test-Path $list) { Remove-ItemProperty -Path $list -Name $kind -ErrorAction SilentlyContinue }
    if (Test-Path $shortcut) { Remove-Item $shortcut }
} else {
    $command = '"{0}" "%1"' -f $program
    Set-Default "$classes\$kind" 'Language model'
    Set-Default "$classes\$kind\DefaultIcon" ('"{0}",0' -f $program)
    Set-Default "$classes\$kind\shell\open\command" $command
    Set-Default "$classes\Applications\Tokonoma.exe\shell\open\command" $command
    New-Item -Path "$classes\Applications\Tokonoma.exe\SupportedTypes" -Force | Out-Null
    foreach ($ending in $documents) {
        New-ItemProperty -Path "$classes\Applications\Tokonoma.exe\SupportedTypes" -Name $ending -Value '' -Force | Out-Null
    }
    New-Item -Path "$classes\.gguf\OpenWithProgids" -Force | Out-Null
    New-ItemProperty -Path "$classes\.gguf\OpenWithProgids" -Name $kind -Value '' -Force | Out-Null
    $link = (New-Object -ComObject WScript.Shell).CreateShortcut($shortcut)
    $link.TargetPath = $program
    $link.WorkingDirectory = $PSScriptRoot
    $link.Save()
}

# Explorer reads the changes now rather than at the next sign-in.
$notify = '[DllImport("shell32.dll")] public static extern void SHChangeNotify(int e, uint f, IntPtr a, IntPtr b);'
(Add-Type -MemberDefinition $notify -Name Shell -Namespace Tokonoma -PassThru)::SHChangeNotify(0x08000000, 0, [IntPtr]::Zero, [IntPtr]::Zero)
