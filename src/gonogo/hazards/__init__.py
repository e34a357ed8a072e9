"""Every known way to fail, one file each, in folders by theme."""
