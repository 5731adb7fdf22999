"""Tokonoma: a desktop chat application for language models on the user's own machine."""

__version__ = "0.1.0"

# The https address of the file that describes the newest release, in the form that is described
# in `app.updates.feed`; whoever builds the app for others sets it. "": it looks for none.
UPDATE_ADDRESS = ""

# The public key (Ed25519, 64 hexadecimal digits) that descriptions must be signed with. "": none, and
# a description is as trustworthy as the certificate of its server.
UPDATE_KEY = ""
