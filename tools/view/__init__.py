"""The parts of tools/reelmesh-view."""
