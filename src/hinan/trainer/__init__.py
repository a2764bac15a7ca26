"""What runs inside the training process: capture, copy, gate, restore. torch lives here."""
