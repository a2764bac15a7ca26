"""Memory of devices and of the host: how bytes get from one to the other, in which order, and by which threads."""
