"""MODEL_CARD.md of the exported checkpoint."""
import json

from drawn_clips import scenes

from . import denoiser, loop, text, vae

TEXT = """# A small model that draws moving shapes

A checkpoint of the CogVideoX family (CogVideoXTransformer3DModel, AutoencoderKLCogVideoX, T5 encoder,
CogVideoXDDIMScheduler) for demonstrations and tests: it draws one or two flat shapes that move,
grow, shrink, turn or blink over a flat background. It can draw nothing else.

- Clips: {size} × {size} pixels, {frames} frames. Prompts: up to {length} tokens. Sampler: DDIM,
  {steps} steps, guidance {guidance}.
- Words: {colours}; {shapes}; backgrounds {backgrounds}; left, right, up, down and between; slowly,
  quickly; small, large; grows, shrinks, turns, blinks, stays still; and some wordings of each.
- Positions: the path of a single shape is centred within {jitter} pixels of the image centre. Of two
  shapes, the one named first is at the upper left, the other at the lower right.
- Sizes: transformer {transformer:.2f} M parameters ({layers} layers, {heads} heads of {width}), text
  encoder {encoder:.2f} M, VAE {vae:.2f} M (channels {channels}); bfloat16, {bytes:.1f} MiB in all.

## Data
Drawn by `tools/drawn_clips` (numpy), with captions in varied wordings; nothing was collected. Every
ninth combination of colour, shape and motion ({held} in all) is held out: it is in no training clip.

## Training
`tests/demo_model/train_demo_model.py`: VAE decoder {decoder_minutes:.0f} minutes ({decoder_steps}
steps), VAE encoder {encoder_minutes:.0f} minutes ({encoder_steps} steps), text encoder
{text_minutes:.0f} minutes ({text_steps} steps), transformer {denoiser_minutes:.0f} minutes
({denoiser_steps} steps of {batch} clips a worker), partly at the same time.
The latent space is fixed in advance: 16 principal components of blocks of 8 × 8 pixels × 4 frames.
The decoder is trained to reconstruct clips from them, with added noise of up to a quarter of their
magnitude; the encoder is trained to predict them. The text encoder is trained first, with a linear
head that predicts the whole scene from the hidden state of every token; the head is then dropped, and
the encoder is frozen. The transformer is trained with v-prediction, zero terminal signal-to-noise
ratio and 10 % empty prompts. Optimizers: Muon and AdamW; weights are averaged.

## Scores
Accuracy measured by `tools/score_demo` on the {clips} prompts of `inputs/demo_heldout.txt` ({things}
shapes, all held-out combinations):

| colour | shape | motion | background | no other patches | clips all right |
| --- | --- | --- | --- | --- | --- |
| {colour:.1f} % | {shape:.1f} % | {motion:.1f} % | {background:.1f} % | {no_unexpected_patches:.1f} % | {whole_clip:.1f} % |

Edges are {edge_width:.1f} pixels wide (drawn clips: 1.1); the background changes by {flicker:.1f} grey
levels between frames.

{notes}

## Licence
Apache-2.0, as the project's.
"""


def write(work, target, pipeline, score, notes, steps, guidance):
    """Writes MODEL_CARD.md from the work folder, the pipeline and the JSON of tools/score_demo.

    notes: Markdown about the machine used for training and known limits.
    """
    million = {name: sum(p.numel() for p in part.parameters()) / 1e6 for name, part in (
        ("transformer", pipeline.transformer), ("encoder", pipeline.text_encoder),
        ("vae", pipeline.vae))}
    spent = {}
    for name in ("decoder", "encoder", "text", "denoiser"):
        step, seconds = loop.progress(work, name)
        spent |= {f"{name}_steps": step, f"{name}_minutes": seconds / 60}
    held = sum(scenes.held_out(c, s, m) for c in range(len(scenes.COLOURS))
               for s in range(len(scenes.SHAPES)) for m in range(len(scenes.MOTIONS)))
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file()) / 2 ** 20
    (target / "MODEL_CARD.md").write_text(TEXT.format(
        size=scenes.SIZE, frames=scenes.FRAMES, length=text.LENGTH, steps=steps,
        guidance=guidance, colours=", ".join(scenes.COLOURS), shapes=", ".join(scenes.SHAPES),
        backgrounds=", ".join(scenes.BACKGROUNDS), layers=denoiser.LAYERS, heads=denoiser.HEADS,
        width=denoiser.HEAD_WIDTH, channels=", ".join(map(str, vae.CHANNELS)), bytes=size,
        held=held, jitter=scenes.JITTER, batch=denoiser.Denoiser.batch, notes=notes.strip(), **million, **spent,
        **json.loads(score.read_text())["summary"]))
