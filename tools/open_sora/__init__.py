"""Parts of tools/convert_open_sora.py: names and shapes of tensors; reading and writing of checkpoints."""
