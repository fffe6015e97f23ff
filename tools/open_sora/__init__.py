"""Released Open-Sora files → the folder that reelmesh reads: names and shapes, reading and writing of tensors."""
