"""What the tools reelmesh-* share: result files, clips as films and pictures, errors."""
