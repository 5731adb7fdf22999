"""Page of connections: the server for other programs, engines elsewhere, contacts, the switch."""
