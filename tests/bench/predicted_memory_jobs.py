"""The jobs of predicted_memory.

To add a job, add a row to JOBS beside those of its model. A job should end within a minute on two
cores, all its ranks together should need less than 6 GiB, and the stage that needs most memory, the
layout or the type should be another than those of its neighbours."""

from predicted_jobs import Job, Training

NO_VIDEO = "output.video=no "
THREADS = "device.threads=2 "
ONE_GROUP = "parallel.replicas=1 "
TEXT_ON_HOST = "parallel.text-weights=host "

JOBS = [
    Job("2b_text", "2b", 1, "9x64x96", "float32", NO_VIDEO),
    Job("2b_decode", "2b", 1, "9x160x240", "bfloat16", THREADS),
    Job("2b_decode_2", "2b", 2, "9x128x192", "float32"),
    Job("2b_long", "2b", 1, "49x240x352", "bfloat16", NO_VIDEO + THREADS),
    Job("2b_ulysses", "2b", 2, "33x160x240", "float32",
        NO_VIDEO + "parallel.cfg=1 parallel.ulysses=2"),
    Job("2b_ring", "2b", 3, "49x240x352", "bfloat16",
        NO_VIDEO + "parallel.cfg=1 parallel.ring=3 sample.guidance=1"),
    Job("2b_mesh", "2b", 8, "25x160x240", "bfloat16",
        NO_VIDEO + "parallel.cfg=2 parallel.ring=2 parallel.ulysses=2"),
    Job("2b_no_guidance", "2b", 4, "33x240x352", "float32",
        NO_VIDEO + "parallel.cfg=2 parallel.ulysses=2 parallel.ring=1 sample.guidance=1"),
    Job("2b_sharded", "2b", 4, "49x240x352", "bfloat16",
        NO_VIDEO + TEXT_ON_HOST + "parallel.cfg=2 parallel.ulysses=2 parallel.weights=sharded"),
    Job("2b_host", "2b", 2, "33x240x352", "float32",
        NO_VIDEO + "parallel.cfg=2 parallel.weights=host"),
    Job("2b_limit", "2b", 1, "33x160x240", "bfloat16",
        NO_VIDEO + THREADS + "device.memory-limit=560MiB"),
    Job("2b_split", "2b", 5, "9x96x160", "bfloat16", "parallel.mode=split parallel.decode=2",
        [{}, {}]),
    Job("2b_split_replicas", "2b", 4, "9x64x96", "float32",
        "parallel.mode=split parallel.replicas=2", [{}, {}]),
    Job("2b_replicas", "2b", 4, "9x64x96", "bfloat16", "parallel.replicas=4", [{}] * 4),
    Job("2b_sizes", "2b", 4, "9x96x160", "bfloat16", "parallel.replicas=2",
        [{}, {"frames": 17, "height": 96, "width": 128}, {"height": 64, "width": 96}, {}]),
    Job("2b_batch", "2b", 2, "33x160x240", "bfloat16",
        NO_VIDEO + ONE_GROUP + "sample.batch=2", [{}, {}, {}]),
    Job("2b_cache", "2b", 2, "49x240x352", "bfloat16",
        NO_VIDEO + "parallel.cfg=1 sample.guidance=1 sample.cache=every:2 sample.steps=4"),
    Job("2b_from_file", "2b", 1, "4x480x720", "bfloat16",
        NO_VIDEO + THREADS + TEXT_ON_HOST + "prompt.video={video}"),
    Job("2b_from_clip", "2b", 2, "17x96x160", "float32",
        NO_VIDEO + "prompt.video={clip} sample.strength=0.5 sample.steps=4"),
    Job("2b_lora", "2b", 1, "17x160x240", "float32",
        NO_VIDEO + THREADS + TEXT_ON_HOST + "model.lora={lora}:0.5"),
    Job("2b_lora_sharded", "2b", 3, "49x160x240", "bfloat16",
        NO_VIDEO + TEXT_ON_HOST + "model.lora={lora} parallel.weights=sharded"),

    Job("5b_text", "5b", 1, "33x160x240", "float32", NO_VIDEO + THREADS),
    Job("5b_seven", "5b", 7, "49x160x240", "bfloat16", NO_VIDEO),
    Job("5b_split_sharded", "5b", 6, "9x96x160", "bfloat16",
        "parallel.mode=split parallel.text=2 parallel.decode=2 parallel.cfg=1 parallel.ulysses=2 "
        "parallel.weights=sharded"),
    Job("5b_frames", "5b", 3, "33x240x352", "bfloat16",
        NO_VIDEO + TEXT_ON_HOST + "parallel.shard=frames"),
    Job("5b_limit", "5b", 2, "33x160x240", "bfloat16",
        NO_VIDEO + "parallel.cfg=1 device.memory-limit=700MiB parallel.weights=host"),

    Job("1.5_text", "1.5", 1, "17x96x160", "float32", NO_VIDEO + THREADS),
    Job("1.5_long", "1.5", 1, "161x160x240", "bfloat16", NO_VIDEO + THREADS + TEXT_ON_HOST),
    Job("1.5_decode", "1.5", 2, "17x96x160", "bfloat16",
        THREADS + "parallel.device-map=0-0:0,1-2:1,3-3:1@host"),
    Job("1.5_grid", "1.5", 5, "81x160x240", "bfloat16",
        NO_VIDEO + "parallel.shard=grid sample.scheduler=ddim"),

    Job("i2v", "i2v", 1, "49x480x720", "bfloat16",
        NO_VIDEO + THREADS + "prompt.image={image} sample.steps=1 sample.guidance=1"),

    Job("1.5-i2v_float32", "1.5-i2v", 1, "33x160x240", "float32",
        NO_VIDEO + THREADS + "prompt.image={image}"),
    Job("1.5-i2v_split", "1.5-i2v", 4, "17x96x160", "bfloat16",
        "parallel.mode=split prompt.image={image}"),
    Job("1.5-i2v_image", "1.5-i2v", 3, "17x384x672", "bfloat16",
        NO_VIDEO + TEXT_ON_HOST + "prompt.image={image} parallel.weights=sharded "
        "sample.guidance=1"),

    Job("stdit", "stdit", 1, "16x256x256", "bfloat16", NO_VIDEO + THREADS),
    Job("stdit_decode", "stdit", 4, "8x128x128", "float32", TEXT_ON_HOST),
    Job("stdit_rows", "stdit", 8, "4x256x256", "bfloat16", NO_VIDEO + ONE_GROUP + TEXT_ON_HOST),
    Job("stdit_batch", "stdit", 2, "16x192x192", "bfloat16",
        NO_VIDEO + ONE_GROUP + TEXT_ON_HOST + "sample.batch=2", [{}, {}, {}]),
    Job("stdit_images", "stdit", 2, "1x512x512", "bfloat16", "parallel.replicas=2", [{}, {}]),

    Job("stdit3_decode", "stdit3", 1, "17x144x256", "bfloat16", THREADS),
    Job("stdit3_teacache", "stdit3", 2, "17x240x426", "float32",
        NO_VIDEO + "sample.cache=teacache:0.2 sample.cache-coefficients=0,0,0,1,0 sample.steps=3"),
    Job("stdit3_split", "stdit3", 4, "17x96x128", "bfloat16", "parallel.mode=split",
        [{}, {"width": 96}]),
    Job("stdit3_long", "stdit3", 3, "68x240x426", "bfloat16", NO_VIDEO),
    Job("stdit3_host", "stdit3", 2, "34x240x426", "bfloat16",
        NO_VIDEO + "parallel.weights=host parallel.shard=height"),

    Training("train_2b", "2b", 1, "17x160x240", "float32"),
    Training("train_2b_bfloat16", "2b", 1, "33x160x240", "bfloat16", TEXT_ON_HOST + "lora.rank=16"),
    Training("train_2b_sharded", "2b", 2, "17x160x240", "bfloat16",
             TEXT_ON_HOST + "parallel.weights=sharded"),
    Training("train_2b_all", "2b", 2, "9x96x160", "float32",
             "lora.targets=to_q,to_k,to_v,to_out.0,ff.net.0.proj,ff.net.2 train.optimizer=sgd"),
    Training("train_5b", "5b", 1, "9x160x240", "bfloat16", THREADS),
    Training("train_5b_replicas", "5b", 2, "9x96x160", "bfloat16",
             TEXT_ON_HOST + "train.batch=3"),
    Training("train_demo", "demo", 4, "9x64x64", "float32", "train.batch=2"),

    Job("demo", "demo", 4, "9x64x64", "float32", "sample.steps=4", [{}] * 8),
    Job("tiny_split", "tiny", 3, "17x64x96", "bfloat16", "parallel.mode=split", [{}, {}]),
]
