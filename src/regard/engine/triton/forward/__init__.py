"""The forward pass: its kernels, their launch, and which one a call gets."""
