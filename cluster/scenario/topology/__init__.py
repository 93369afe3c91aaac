"""Which validators have a link, the paths over those links, and their quality."""
