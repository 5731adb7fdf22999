#!/bin/sh
# Adds Tokonoma to this user's menu, opens .gguf files with it, and offers it for documents; nothing is copied but the icons.
#   ./install.sh             add it (again after the folder was moved)
#   ./install.sh uninstall   take it away; conversations, models and settings stay
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
data=${XDG_DATA_HOME:-$HOME/.local/share}
bin=$HOME/.local/bin
desktop=$data/applications/tokonoma.desktop
mime=$data/mime/packages/tokonoma.xml
link=$bin/tokonoma

refresh() { # without these programs the desktop updates its databases later
    command -v update-desktop-database >/dev/null && update-desktop-database -q "$data/applications" || true
    command -v update-mime-database >/dev/null && update-mime-database "$data/mime" >/dev/null || true
    command -v gtk-update-icon-cache >/dev/null && gtk-update-icon-cache -q -t -f "$data/icons/hicolor" 2>/dev/null || true
}

# The document types, of which other programs stay the default: "Open with" offers this one for them.
documents=$(sed -n 's/^MimeType=application\/x-gguf;//p' "$here/share/applications/tokonoma.desktop" | tr ';' ' ')

defaults() { # one line for each document type that has a default: the type, then the program
    command -v xdg-mime >/dev/null || return 0
    for type in $documents; do
        program=$(xdg-mime query default "$type" 2>/dev/null) || continue
        case $program in ?*) printf '%s %s\n' "$type" "$program" ;; esac
    done
}

restore_defaults() { # $1: what `defaults` said before; an entry of the user's own would rank first
    now=$(defaults)
    printf '%s\n' "$1" | while read -r type program; do
        case $now in *"$type tokonoma.desktop"*)
            case $program in ''|tokonoma.desktop) ;; *) xdg-mime default "$program" "$type" || true ;; esac ;;
        esac
    done
}

# Quote a path for an Exec line: escape the special characters in double quotes, then escape the
# backslashes again for the desktop file's string syntax.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | sed -e 's/[\\"`$]/\\&/g' -e 's/\\/\\\\/g' -e 's/%/%%/g')"
}

install_all() {
    case $here in *'
'*) echo "The folder's name has a line break in it; rename it first." >&2; exit 1 ;; esac
    mkdir -p "$data/applications" "$data/mime/packages" "$bin"
    before=$(defaults)
    program=$here/tokonoma
    exec_line="Exec=$(quoted "$program") %F"
    {
        while IFS= read -r line; do
            case $line in
                Exec=*) printf '%s\n' "$exec_line" ;;
                TryExec=*) printf 'TryExec=%s\n' "$(printf '%s' "$program" | sed 's/\\/\\\\/g')" ;;
                *) printf '%s\n' "$line" ;;
            esac
        done <"$here/share/applications/tokonoma.desktop"
    } >"$desktop.part"
    mv -f "$desktop.part" "$desktop"
    cp "$here/share/mime/packages/tokonoma.xml" "$mime"
    (cd "$here/share/icons" && find hicolor -type f) | while IFS= read -r icon; do
        mkdir -p "$data/icons/$(dirname "$icon")"
        cp "$here/share/icons/$icon" "$data/icons/$icon"
    done
    if [ -L "$link" ] || [ ! -e "$link" ]; then
        ln -sfn "$program" "$link.part"
        mv -fT "$link.part" "$link" # at once: there is no moment without the program
    else
        echo "$link is another program and stays as it is." >&2
    fi
    refresh
    restore_defaults "$before"
    echo "Tokonoma is in the menu, and opens .gguf files. Keep this folder where it is: $here"
}

uninstall_all() {
    rm -f "$desktop" "$mime"
    find "$data/icons/hicolor" -name 'tokonoma.png' -path '*/apps/*' -exec rm -f {} + 2>/dev/null || true
    rm -f "$data/icons/hicolor/scalable/apps/tokonoma.svg"
    case $(readlink "$link" 2>/dev/null || true) in */tokonoma) rm -f "$link" ;; esac
    refresh
    echo "Tokonoma is out of the menu. This folder can be deleted; your conversations, models and settings stay."
}

case ${1:-install} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) echo "Usage: ./install.sh [install|uninstall]" >&2; exit 2 ;;
esac
