"""Training of the demo's models on clips that tools/drawn_clips draws."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
