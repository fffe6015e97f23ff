#!/usr/bin/env python3
"""Times PyTorch for tools/compare_with_pytorch, which runs this as a separate process: a
transformer step, a text encoder pass, a decode.

    tools/timed_in_pytorch.py ORDERS

ORDERS is a JSON object (see pytorch() in compare_with_pytorch). The last line printed is a JSON
object too: "seconds" of each stage, and on a GPU "compiled" (the same with torch.compile), "memory"
(peak bytes of tensors in each stage; "reserved": with what the allocator keeps), "notes" (failures
and their reasons) and "versions". Times are the fastest of several calls on CPUs, and medians after
warm-up calls on a GPU.
"""
import json
import pathlib
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Stages:
    """Times stages; on a GPU a stage that fails is noted and the others are still timed."""

    def __init__(self, device):
        self.on_gpu, self.cuda = device != "cpu", device.startswith("cuda")
        self.found = {"seconds": {}, "compiled": {}, "memory": {}, "notes": []}

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def once(self, function):
        self.wait()
        start = time.perf_counter()
        function()
        self.wait()
        return time.perf_counter() - start

    def time(self, stage, times, function, kind="seconds", warm=2):
        if not self.on_gpu:
            self.found[kind][stage] = min(self.once(function) for _ in range(times))
            return
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            for _ in range(warm):
                function()
            self.found[kind][stage] = statistics.median(self.once(function) for _ in range(times))
        except Exception as error:  # of any library; noted, and the other stages are still timed
            what = str(error).strip().splitlines()
            self.found["notes"].append(f"{stage} ({'eager' if kind == 'seconds' else kind}): "
                                       f"{type(error).__name__}: {what[0] if what else ''}")
        if self.cuda:
            name = stage if kind == "seconds" else f"{stage}, {kind}"
            self.found["memory"][name] = torch.cuda.max_memory_allocated()
            self.found["memory"]["reserved"] = max(torch.cuda.max_memory_reserved(),
                                                   self.found["memory"].get("reserved", 0))


def load(kind, folder, request):
    dtype = getattr(torch, request["dtype"])
    return kind.from_pretrained(folder, torch_dtype=dtype).to(request["device"]).eval()


def cogvideox(request, context):
    """Functions that run a transformer step and a decode, and how to compile them."""
    from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    model, device = request["model"], request["device"]
    transformer = load(CogVideoXTransformer3DModel, f"{model}/transformer", request)
    config = transformer.config
    frames = (request["frames"] - 1) // 4 + 1
    rows, columns = request["height"] // 8, request["width"] // 8
    latents = torch.randn(1, frames, config.in_channels, rows, columns, dtype=context.dtype,
                          device=device)
    rotary = None
    if config.use_rotary_positional_embeddings:
        grid = rows // config.patch_size, columns // config.patch_size
        rotary = get_3d_rotary_pos_embed(config.attention_head_dim, ((0, 0), grid), grid, frames,
                                         device=torch.device(device))
    timestep = torch.tensor([500, 500], device=device)

    def step():
        out = transformer(hidden_states=latents.repeat(2, 1, 1, 1, 1), timestep=timestep,
                          encoder_hidden_states=context, image_rotary_emb=rotary)[0].float()
        return out[0] + 6 * (out[1] - out[0])

    def compile_step():
        if request["compile"] == "whole":
            transformer.compile(mode=request["compile_mode"])
        else:
            for block in transformer.transformer_blocks:
                block.compile(mode=request["compile_mode"])

    vae = load(AutoencoderKLCogVideoX, f"{model}/vae", request)
    return step, lambda: vae.decode(latents.permute(0, 2, 1, 3, 4)), compile_step


def open_sora(request, context):
    """The same for Open-Sora. Position tables are not loaded: their values do not affect times."""
    from diffusers import AutoencoderKL
    from safetensors.torch import load_file
    sys.path.insert(0, str(ROOT / "tools/reference"))
    import opensora_release

    def fused(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    def of_samples(q, k, v, p, attn_bias):
        parts = zip(*(x.split(lengths, 1) for x, lengths in (
            (q, attn_bias.queries), (k, attn_bias.keys), (v, attn_bias.keys))))
        return torch.cat([fused(*part) for part in parts], 1)

    def attend(self, x):  # self-attention of whole sequences, in place of flash_attn
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, self.head_dim).unbind(2)
        return self.proj(fused(self.q_norm(q), self.k_norm(k), v).reshape(x.shape))

    opensora_release.plain_attention = of_samples
    blocks, stdit = opensora_release.load(request["open_sora"],
                                          ["models.layers.blocks", "models.stdit.stdit"])
    blocks.Attention.forward = attend
    folder = pathlib.Path(request["model"], "transformer")
    config = json.loads((folder / "config.json").read_text())
    fields = {name: value for name, value in config.items() if not name.startswith("_")}
    size = [request["frames"], request["height"] // 8, request["width"] // 8]
    model = stdit.STDiT(**{**fields, "input_size": size})
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
    model.load_state_dict({k: v for k, v in tensors.items() if "pos_embed" not in k}, strict=False)
    device = request["device"]
    model = model.to(device, context.dtype).eval()
    latents = torch.randn(1, 4, *size, dtype=context.dtype, device=device)
    mask = torch.ones(1, context.shape[1], dtype=torch.long, device=device)
    timestep = torch.tensor([500, 500], device=device)

    def step():
        out = model(latents.repeat(2, 1, 1, 1, 1), timestep, context[:, None], mask=mask).float()
        return out[1] + 7 * (out[0] - out[1])

    vae = load(AutoencoderKL, f"{request['model']}/vae", request)
    return step, lambda: [vae.decode(frame[None]) for frame in latents[0].transpose(0, 1)], \
        lambda: model.compile(mode=request["compile_mode"])


def attentions(request, config, stages):
    """Milliseconds that each of PyTorch's kernels takes for the attention of one layer."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    heads, channels = config["num_attention_heads"], config["attention_head_dim"]
    tokens = config["max_text_seq_length"] + ((request["frames"] - 1) // 4 + 1) * (
        request["height"] // 16) * (request["width"] // 16)
    q, k, v = (torch.randn(2, heads, tokens, channels, device=request["device"],
                           dtype=getattr(torch, request["dtype"])) for _ in range(3))
    found = {}
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
                run(), run()
                found[name.split("_")[0].lower()] = statistics.median(
                    stages.once(run) for _ in range(10)) * 1e3
        except Exception as error:  # this kernel does not support these shapes or the device
            found[name.split("_")[0].lower()] = str(error).strip().splitlines()[0][:80]
    return {"shape": f"2 x {heads} x {tokens} x {channels}", "ms": found}


def versions(device):
    found = {"torch": torch.__version__}
    for name in ("diffusers", "transformers"):
        if name in sys.modules:
            found[name] = sys.modules[name].__version__
    if device.startswith("cuda"):
        found |= {"GPU": torch.cuda.get_device_name(), "CUDA": torch.version.cuda,
                  "cuDNN": str(torch.backends.cudnn.version())}
    return found


def time_denoising(stages, request, step, decode, compile_step):
    stages.time("denoise_step", request["steps"], step)
    if request["gpu"] and request["compile"] != "no":
        start = time.perf_counter()
        compile_step()
        stages.time("denoise_step", request["steps"], step, "compiled", warm=3)
        stages.found["compilation"] = time.perf_counter() - start
    if request["decode"]:
        stages.time("decode", 2 if request["gpu"] else 1, decode, warm=1)


def main(request):
    from transformers import T5EncoderModel
    torch.set_num_threads(request["threads"])
    # No TF32, neither in matrix products nor in convolutions.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device, model = request["device"], request["model"]
    stages = Stages("emulated" if request["gpu"] and device == "cpu" else device)
    config = json.loads(pathlib.Path(model, "transformer/config.json").read_text())
    family = open_sora if config["_class_name"] == "STDiT" else cogvideox
    with torch.no_grad():
        if request["gpu"] and family is cogvideox:
            stages.found["attention"] = attentions(request, config, stages)
        text = load(T5EncoderModel, f"{model}/text_encoder", request)
        tokens = config["model_max_length" if family is open_sora else "max_text_seq_length"]
        ids = torch.arange(tokens, device=device)[None] % 1000
        stages.time("encode", 2 if not request["gpu"] else 5, lambda: text(ids))
        context = text(ids)[0].to(getattr(torch, request["dtype"])).repeat(2, 1, 1)
        del text
        try:
            time_denoising(stages, request, *family(request, context))
        except ImportError as error:
            if not request["gpu"]:
                raise
            stages.found["notes"].append(f"no step and no decode: {error}")
    stages.found["versions"] = versions(device)
    print(json.dumps(stages.found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
