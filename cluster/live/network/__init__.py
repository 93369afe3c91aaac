"""Messages between live validators: connections, handshakes, links with loss and delay."""
