#!/usr/bin/env python3
"""Times PyTorch for tests/bench/compare_with_pytorch, which runs this as a separate process: a text
encoder pass, a transformer step (compiled, then eager with few calls), a decode, kernels for
attention, and on a GPU those of a step. In this order, because a time limit cuts off what comes
last.

    tests/bench/timed_in_pytorch.py ORDERS

ORDERS is a JSON object (see request_of in compare_with_pytorch). Each figure is printed as soon as
it exists, as a line with a JSON object, so that a process that is ended loses only what it had not
measured yet:

    {"stage", "kind", "seconds"}            a timed call; kind: eager or compiled
    {"stage", "kind", "bytes", "reserved"}  end of a stage: peak bytes of tensors, and with what the
                                            allocator keeps (0 on CPUs)
    {"attention", "shape", "ms"}            a kernel; "error" in place of "ms" if it does not serve
    {"kernel", "kind", "ms", "calls"}       of a step, those that take longest
    {"compilation"}                         seconds of the first compiled step
    {"versions"}                            by library
    {"note"}                                what failed or is left out, and why

What is missing is noted and the rest is timed: without diffusers, tests/bench/plain_cogvideox.py stands
in for the transformer and there is no decode; without transformers there is no text encoder.
"""
import json
import pathlib
import statistics
import sys
import time

try:
    import torch
except ImportError as error:
    sys.exit(f"{sys.executable}: {error}: needs torch, and diffusers, transformers, safetensors "
             "and accelerate for all that is timed, from pip")

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from reelmesh_results.span_names import names  # noqa: E402

# Warm-up and calls of the eager step where the compiled one has been timed before it.
EAGER = 1, 3
KERNELS = 8  # of a step, that are named


def report(**found):
    print(json.dumps(found), flush=True)


def in_a_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].split('. ')[0][:160] if text else ''}"


class Clock:
    """Times calls on a device, to the end of what they started there."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def once(self, function):
        if self.cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def stage(self, stage, function, warm, calls, kind="eager"):
        """Reports each of the calls after the warm-up, then the memory; a failure is noted."""
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            for call in range(warm):
                seconds = self.once(function)
                if call == 0 and kind == "compiled":
                    report(compilation=seconds)
            for _ in range(calls):
                report(stage=stage, kind=kind, seconds=self.once(function))
        except Exception as error:  # of any library; the other stages are still timed
            report(note=f"{stage} ({kind}): {in_a_line(error)}")
        report(stage=stage, kind=kind,
               bytes=torch.cuda.max_memory_allocated() if self.cuda else 0,
               reserved=torch.cuda.max_memory_reserved() if self.cuda else 0)


def loaded(kind, folder, request):
    dtype = getattr(torch, request["dtype"])
    return kind.from_pretrained(folder, torch_dtype=dtype).to(request["device"]).eval()


def cogvideox_transformer(request):
    import plain_cogvideox
    folder, device = f"{request['model']}/transformer", request["device"]
    if not request["plain"]:
        try:
            from diffusers import CogVideoXTransformer3DModel
        except Exception as error:  # also where it does not suit the other packages
            report(note=f"no diffusers ({in_a_line(error)})")
        else:
            return loaded(CogVideoXTransformer3DModel, folder, request)
    report(note="the transformer is tests/bench/plain_cogvideox.py, not that of diffusers")
    return plain_cogvideox.load(folder, getattr(torch, request["dtype"]), device)


def cogvideox(request, config, context):
    """Functions that run a transformer step, compile it, and load a decode."""
    import plain_cogvideox
    device = request["device"]
    transformer = cogvideox_transformer(request)
    frames = (request["frames"] - 1) // 4 + 1
    rows, columns = request["height"] // 8, request["width"] // 8
    latents = torch.randn(1, frames, config["in_channels"], rows, columns, dtype=context.dtype,
                          device=device)
    rotary = None
    if config["use_rotary_positional_embeddings"]:
        rotary = plain_cogvideox.rotary_tables(config, (frames, rows // 2, columns // 2), device)
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

    def load_decode():
        from diffusers import AutoencoderKLCogVideoX
        vae = loaded(AutoencoderKLCogVideoX, f"{request['model']}/vae", request)
        return lambda: vae.decode(latents.permute(0, 2, 1, 3, 4))

    return step, compile_step, load_decode


def wan(request, config, context):
    """The same for Wan. As in its pipeline, guidance is a second call."""
    from diffusers import WanTransformer3DModel
    transformer = loaded(WanTransformer3DModel, f"{request['model']}/transformer", request)
    frames = (request["frames"] - 1) // 4 + 1
    rows, columns = request["height"] // 8, request["width"] // 8
    latents = torch.randn(1, config["in_channels"], frames, rows, columns, dtype=context.dtype,
                          device=request["device"])
    timestep = torch.tensor([500], device=request["device"])

    def step():
        text, without = (transformer(hidden_states=latents, timestep=timestep,
                                     encoder_hidden_states=branch[None])[0].float()
                         for branch in context)
        return without + 6 * (text - without)

    def compile_step():
        for block in transformer.blocks:
            block.compile(mode=request["compile_mode"])

    def load_decode():
        from diffusers import AutoencoderKLWan
        vae = loaded(AutoencoderKLWan, f"{request['model']}/vae", request)
        return lambda: vae.decode(latents)

    return step, compile_step, load_decode


def open_sora(request, config, context):
    """The same for Open-Sora. Position tables are not loaded: their values do not affect times."""
    from safetensors.torch import load_file
    import open_sora_in_pytorch
    stdit = open_sora_in_pytorch.stdit(request["open_sora"])
    fields = {name: value for name, value in config.items() if not name.startswith("_")}
    size = [request["frames"], request["height"] // 8, request["width"] // 8]
    model = stdit.STDiT(**{**fields, "input_size": size})
    tensors = {}
    for path in pathlib.Path(request["model"], "transformer").glob("*.safetensors"):
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

    def load_decode():
        from diffusers import AutoencoderKL
        vae = loaded(AutoencoderKL, f"{request['model']}/vae", request)
        return lambda: [vae.decode(frame[None]) for frame in latents[0].transpose(0, 1)]

    return step, lambda: model.compile(mode=request["compile_mode"]), load_decode


def only_kernel(name):
    """A context in which attention uses this kernel or fails: cudnn, flash or efficient."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, f"{name.upper()}_ATTENTION"))


def name_kernels(step, kind):
    """Reports the kernels that take most of a step's time on a GPU."""
    from torch.profiler import ProfilerActivity, profile
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            torch.cuda.synchronize()
        kernels = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
        for kernel in kernels[:KERNELS]:
            report(kernel=kernel.key[:100], kind=kind, calls=kernel.count,
                   ms=kernel.self_device_time_total * 1e-3)
    except Exception as error:  # no counters for this user, or another profiler
        report(note=f"no names of kernels: {in_a_line(error)}")


def time_steps(clock, request, step, compile_step):
    """Compiled, which matters most, then eagerly. Returns the kind that step() has afterwards."""
    warm = request["warm_steps"], request["steps"]
    if request["compile"] == "no":
        clock.stage(names.denoise_step, step, *warm)
        return "eager"
    compile_step()
    clock.stage(names.denoise_step, step, *warm, kind="compiled")
    if not hasattr(torch.compiler, "set_stance"):
        report(note="no eager step beside the compiled one: needs PyTorch 2.6")
    else:
        with torch.compiler.set_stance("force_eager"):
            clock.stage(names.denoise_step, step, EAGER[0], min(EAGER[1], request["steps"]))
    return "compiled"


def time_attention(clock, request, config):
    """Each of PyTorch's kernels for the attention of a layer with guidance."""
    heads, channels = config["num_attention_heads"], config["attention_head_dim"]
    tokens = config["max_text_seq_length"] + ((request["frames"] - 1) // 4 + 1) * (
        request["height"] // 16) * (request["width"] // 16)
    # As they leave the linear layers.
    q, k, v = (torch.randn(2, tokens, heads, channels, device=request["device"],
                           dtype=getattr(torch, request["dtype"])).transpose(1, 2)
               for _ in range(3))

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    for kernel in ("cudnn", "flash", "efficient"):
        try:
            with only_kernel(kernel):
                attend(), attend()
                found = {"ms": statistics.median(clock.once(attend) for _ in range(10)) * 1e3}
        except Exception as error:  # this kernel does not serve these shapes or the device
            found = {"error": in_a_line(error)}
        report(attention=kernel, shape=f"2 x {heads} x {tokens} x {channels}", **found)


def time_text(clock, request, tokens):
    """Times the text encoder. Returns the context of a step, or None."""
    try:
        import transformers
        folder = pathlib.Path(request["model"], "text_encoder")
        kind = json.loads((folder / "config.json").read_text())["architectures"][0]
        text = loaded(getattr(transformers, kind), folder, request)
        ids = torch.arange(tokens, device=request["device"])[None] % 1000
        clock.stage(names.encode, lambda: text(ids), request["warm_calls"], 5)
        return text(ids)[0].to(getattr(torch, request["dtype"])).repeat(2, 1, 1)
    except Exception as error:  # of any library; a step can do without
        report(note=f"no text encoder: {in_a_line(error)}")
        return None


def versions(device):
    found = {name: sys.modules[name].__version__ for name in ("torch", "diffusers", "transformers")
             if name in sys.modules}
    if device.startswith("cuda"):
        found |= {"GPU": torch.cuda.get_device_name(), "CUDA": torch.version.cuda,
                  "cuDNN": str(torch.backends.cudnn.version())}
    return found


def main(request):
    torch.set_num_threads(request["threads"])
    # No TF32, neither in matrix products nor in convolutions.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device = request["device"]
    clock = Clock(device)
    config = json.loads(pathlib.Path(request["model"], "transformer/config.json").read_text())
    model, tokens, channels = {
        "STDiT": (open_sora, "model_max_length", "caption_channels"),
        "WanTransformer3DModel": (wan, None, "text_dim"),
    }.get(config["_class_name"], (cogvideox, "max_text_seq_length", "text_embed_dim"))
    with torch.no_grad():
        context = None
        tokens = config[tokens] if tokens else 512  # as Wan's pipeline
        if request["encode"]:
            context = time_text(clock, request, tokens)
        if context is None:  # its values do not affect times
            context = torch.randn(2, tokens, config[channels], device=device).to(
                getattr(torch, request["dtype"]))
        step, compile_step, load_decode = model(request, config, context)
        report(versions=versions(device))
        kind = time_steps(clock, request, step, compile_step)
        if request["decode"]:
            try:
                decode = load_decode()
            except Exception as error:  # as above
                report(note=f"no decode: {in_a_line(error)}")
            else:
                clock.stage(names.decode, decode, request["warm_calls"], request["decodes"])
        if model is cogvideox:
            time_attention(clock, request, config)
        if clock.cuda:  # last: the profiler may slow down what comes after it
            name_kernels(step, kind)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
