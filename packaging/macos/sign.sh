#!/bin/sh
# Signs, notarises and packs build/bundle/Tokonoma.app. Not run on the machines this was written on.
#   TOKONOMA_SIGNING_IDENTITY   "Developer ID Application: NAME (TEAM)"
#   TOKONOMA_NOTARY_PROFILE     a profile kept by `xcrun notarytool store-credentials`
set -eu

app=${1:-build/bundle/Tokonoma.app}
image=${app%.app}.dmg
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
identity=${TOKONOMA_SIGNING_IDENTITY:?names the certificate to sign with}

# Sign from the inside out: a bundle's signature covers the signatures of the files in it.
find "$app/Contents" -type f \( -name '*.dylib' -o -name '*.so' -o -perm -u+x \) -print0 |
    xargs -0 codesign --force --timestamp --options runtime --sign "$identity"
codesign --force --timestamp --options runtime \
    --entitlements "$here/entitlements.plist" --sign "$identity" "$app"
codesign --verify --deep --strict "$app"

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
cp -R "$app" "$staging/"
ln -s /Applications "$staging/Applications"
hdiutil create -volname Tokonoma -srcfolder "$staging" -ov -format UDZO "$image"
codesign --force --timestamp --sign "$identity" "$image"
if [ -n "${TOKONOMA_NOTARY_PROFILE:-}" ]; then
    xcrun notarytool submit "$image" --keychain-profile "$TOKONOMA_NOTARY_PROFILE" --wait
    xcrun stapler staple "$image"
fi
echo "$image"
