"""Errors of Open-Sora's own code in bfloat16 against its float32 results, for make_opensora_data.py.

`max` is the maximum error and `rms` the root-mean-square error, both divided by the largest absolute value of the
float32 result, over the stored frames. The noise is that of float32, rounded where Open-Sora rounds it. Timesteps are
not rounded: Open-Sora does cast them to bfloat16 (989 becomes 988), but this error would hide all others.
"""
import torch

import opensora_release
from opensora_checkpoints import weights_of

ROUNDED = torch.bfloat16


def error(found, expected):
    difference = (found.double() - expected.double()).abs()
    largest = float(expected.double().abs().max())
    return {"max": float(difference.max()) / largest, "rms": float(difference.square().mean().sqrt()) / largest}


class Texts:
    """Replaces the text encoder in a sampler: returns the stored embeddings of one clip."""

    def __init__(self, tensors, rows, y_embedder):
        self.y = tensors["text.embeddings"][rows][:, None]
        self.mask, self.y_embedder = tensors["text.mask"][rows].long(), y_embedder

    def encode(self, prompts):
        return {"y": self.y, "mask": self.mask}

    def null(self, n):
        return self.y_embedder.y_embedding[None].repeat(n, 1, 1)[:, None]


class ExactTime:
    """A transformer in bfloat16 whose timesteps are not rounded."""

    def __init__(self, model):
        self.model, self.y_embedder = model, model.y_embedder
        model.t_embedder.forward = self._embed

    def _embed(self, t, dtype):
        embedder = self.model.t_embedder
        return embedder.mlp(embedder.timestep_embedding(self.t, embedder.frequency_embedding_size).to(dtype))

    def forward(self, x, timestep, *args, **kwargs):
        self.t = timestep
        return self.model(x, timestep, *args, **kwargs)

    __call__ = forward


def call_error(model, tensors, conditions):
    rows = tensors["batch.texts"].tolist()
    texts = Texts(tensors, rows, model.y_embedder)
    x, t = tensors["batch.latents"], tensors["batch.timestep"].repeat(2 * len(rows))
    y = torch.cat([texts.y.to(ROUNDED), texts.null(len(rows))])
    output = model(torch.cat([x, x]), t, y, mask=texts.mask, **conditions)
    return error(output[:, :, tensors["batch.frames"].tolist()], tensors["batch.output"])


def errors_v1_0(kind, folder, release, tensors):
    stdit, vaes, iddpm = opensora_release.load(release, ["models.stdit.stdit", "models.vae.vae", "schedulers.iddpm"])
    model = stdit.STDiT(**kind["transformer"], dtype=ROUNDED).eval()
    model.load_state_dict({**model.state_dict(), **{
        k: v for k, v in weights_of(folder / "transformer").items() if not k.startswith("pos_embed")}})
    model = ExactTime(model.to(ROUNDED))
    vae = vaes.VideoAutoencoderKL(folder / "vae").eval().to(ROUNDED)
    clip = kind["clips"][0]
    scheduler = iddpm.IDDPM(**{**kind["scheduler"], "num_sampling_steps": clip["steps"]})
    torch.manual_seed(clip["seed"])
    texts = Texts(tensors, [clip["prompt"]], model.y_embedder)
    final = scheduler.sample(model, texts, tensors["clip0.noise"].shape, ["-"], "cpu")[0]
    return {"transformer": call_error(model, tensors, {}), "latents": error(final, tensors["clip0.latents"]),
            "vae": error(vae.decode(tensors["vae.latents"][None].to(ROUNDED))[0], tensors["vae.decoded"])}


def errors_v1_2(kind, folder, release, tensors, video_vae):
    stdit, vaes, _, rf, scripts = opensora_release.load(
        release, ["models.stdit.stdit3", "models.vae.vae", "models.vae.vae_temporal", "schedulers.rf",
                  "utils.inference_utils"])
    model = stdit.STDiT3(stdit.STDiT3Config(**kind["transformer"])).eval()
    model.load_state_dict(weights_of(folder / "transformer"))
    model = ExactTime(model.to(ROUNDED))
    vae = video_vae(kind, folder, vaes).to(ROUNDED)

    def conditions(count):
        return scripts.prepare_multi_resolution_info(
            "STDiT2", count, (kind["height"], kind["width"]), kind["num_frames"], kind["fps"], "cpu", ROUNDED)

    clip = kind["clips"][0]
    scheduler = rf.RFLOW(**{**kind["scheduler"], "num_sampling_steps": clip["steps"]})
    final = scheduler.sample(
        model, Texts(tensors, [clip["prompt"]], model.y_embedder), z=tensors["clip0.noise"][None].to(ROUNDED),
        prompts=["-"], device="cpu", additional_args=conditions(1), progress=False)[0]
    count = 26
    decoded = vae.decode(tensors[f"vae{count}.latents"][None].to(ROUNDED), num_frames=count)[0]
    return {"transformer": call_error(model, tensors, conditions(2)), "latents": error(final, tensors["clip0.latents"]),
            "vae": error(decoded[:, tensors[f"vae{count}.frames"].tolist()], tensors[f"vae{count}.decoded"])}
