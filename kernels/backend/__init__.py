"""Backend: what a device is to those that use it, the reference of all, and a model on several."""
