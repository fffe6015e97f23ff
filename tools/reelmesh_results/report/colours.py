"""Colours of spans and lanes by name. Each is readable on a light and on a dark page."""

LANES = {"compute": "#3d7cc9", "exchange": "#e08a1e", "file": "#7d8ca0",
         "waiting": "#a3acb8"}
NAMES = {"encode": "#8a63c9", "encode_image": "#6d4fb0", "encode_video": "#6d4fb0",
         "t5_layer": "#a98bdd", "denoise_step": "#2f6fc0", "denoise_steps": "#2f6fc0",
         "reuse_step": "#8f8f3c",
         "measure_change": "#4f9fb3",
         "train_step": "#2f6fc0", "validate": "#4f9fb3", "make_samples": "#b5446e",
         "transformer_block": "#5b9ae0", "product": "#1a94ad", "attention": "#c2508e",
         "attention_backward": "#a8377a",
         "convolution": "#b0653a", "norm": "#9aa83a", "decode": "#23875e",
         "decode_batch": "#55b08a", "exchange": "#e08a1e", "handover": "#c9562f",
         "load": "#7d8ca0", "write": "#c2a15a", "hash": "#9a5f7a", "check_inputs": "#7f6a3a",
         "copy_weights": "#46566b", "prepare": "#4a8f8f", "wait": "#a3acb8",
         "write_trace": "#a84fb0",
         "measure": "#b84a4a", "save": "#c78f3d", "encode_batch": "#c78f3d",
         "decode_frame": "#4c9a4c", "guidance": "#7f6a3a", "weights": "#6b7fd1"}
# Purposes of memory, in the order in which they are stacked.
PURPOSES = {"weights": "#2f6fc0", "activations": "#23875e", "workspace": "#c2508e",
            "exchange": "#e08a1e", "queue": "#8a63c9"}
# Quarters of the timesteps, or timesteps in them, from little noise to much.
QUARTERS = ("#e08a1e", "#23875e", "#2f6fc0", "#a8377a")
OTHERS = ("#7f6a3a", "#4f9fb3", "#b84a4a", "#6b7fd1", "#8f8f3c", "#a25fb0", "#4c9a4c", "#c78f3d")


def of_name(name):
    """The colour of the spans of this name, the same in every report, also of a name that only
    other versions of reelmesh have."""
    return NAMES.get(name) or OTHERS[sum(name.encode()) % len(OTHERS)]
