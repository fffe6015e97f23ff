"""The clips that the demo's models are made for: moving shapes, their captions, drawing, scoring."""
