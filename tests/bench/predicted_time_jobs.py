"""The jobs of predicted_time: one thread a rank, few layers, one after the other in a few minutes."""

from predicted_jobs import Job, Training

NO_VIDEO = "output.video=no sample.steps=5 "
FEW = "sample.steps=3 "
ONE_GROUP = "parallel.replicas=1 "

JOBS = [
    Job("2b", "2b", 1, "33x160x240", "bfloat16", NO_VIDEO),
    Job("2b_float32", "2b", 1, "17x96x160", "float32", NO_VIDEO),
    Job("2b_decode", "2b", 1, "9x128x192", "bfloat16", FEW),
    Job("2b_decode_float32", "2b", 2, "9x64x96", "float32", FEW),
    Job("2b_cfg", "2b", 2, "25x160x240", "bfloat16", NO_VIDEO + "parallel.cfg=2"),
    Job("2b_ulysses", "2b", 2, "33x160x240", "bfloat16",
        NO_VIDEO + "parallel.cfg=1 parallel.ulysses=2"),
    Job("2b_ring", "2b", 2, "33x160x240", "float32", FEW + "output.video=no parallel.cfg=1 "
        "parallel.ring=2 parallel.ulysses=1"),
    Job("2b_three", "2b", 3, "33x240x352", "bfloat16",
        FEW + "output.video=no parallel.cfg=1 parallel.ring=3 sample.guidance=1"),
    Job("2b_four", "2b", 4, "33x160x240", "bfloat16",
        NO_VIDEO + "parallel.cfg=2 parallel.ulysses=2"),
    Job("2b_replicas", "2b", 2, "9x96x160", "bfloat16", FEW + "parallel.replicas=2", [{}] * 4),
    Job("2b_split", "2b", 3, "9x96x160", "bfloat16", "parallel.mode=split "
        "sample.steps=6", [{}] * 3),
    Job("2b_batch", "2b", 2, "17x96x160", "bfloat16", NO_VIDEO + ONE_GROUP + "sample.batch=2",
        [{}, {}]),
    Job("2b_sharded", "2b", 2, "33x160x240", "bfloat16",
        NO_VIDEO + "parallel.cfg=2 parallel.weights=sharded"),
    Job("5b", "5b", 1, "33x160x240", "bfloat16", NO_VIDEO),
    Job("5b_float32", "5b", 2, "17x96x160", "float32", NO_VIDEO),
    Job("5b_frames", "5b", 3, "33x160x240", "bfloat16", NO_VIDEO + "parallel.shard=frames"),
    Job("1.5", "1.5", 1, "33x96x160", "float32", FEW + "output.video=no"),
    Job("1.5_decode", "1.5", 2, "17x96x160", "bfloat16", FEW),
    Job("stdit", "stdit", 1, "16x256x256", "bfloat16", NO_VIDEO),
    Job("stdit_decode", "stdit", 2, "8x128x128", "float32", FEW),
    Job("stdit_four", "stdit", 4, "16x256x256", "bfloat16", NO_VIDEO + ONE_GROUP),
    Job("stdit3_decode", "stdit3", 1, "17x144x256", "bfloat16", FEW),
    Job("stdit3_two", "stdit3", 2, "34x144x256", "bfloat16", NO_VIDEO),
    Job("demo", "demo", 2, "9x64x64", "float32", "sample.steps=20", [{}] * 8),
    Job("demo_four", "demo", 4, "9x64x64", "float32", "sample.steps=20 parallel.replicas=1",
        [{}] * 2),
    Training("train_2b", "2b", 1, "9x96x160", "bfloat16", "train.steps=4"),
    Training("train_5b_two", "5b", 2, "9x96x160", "bfloat16", "train.steps=4 train.batch=2"),
]
