"""The forward pass: its kernels, their launch, and the choice between them."""
