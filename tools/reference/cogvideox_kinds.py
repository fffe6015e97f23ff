"""The kinds of tiny checkpoints, and the texts, of make_cogvideox_data.py.

Sizes are chosen not to be divisible: 5, 7 and 3 heads, 7 and 5 rows of tokens, 3, 4 and 5 (+1 padding)
latent frames, 19 text tokens. Names are those of the arguments of diffusers' classes. KINDS make videos
from text, IMAGE_KINDS from an image and text.
"""
import torch

PROMPTS = [
    "",
    "A small boat drifts across a quiet lake at dawn.",
    "½ ﬁlm: Café, façade — 東京の夜",
    "blurry, dark, low quality",
    "A red fox   runs through fresh snow while the camera follows it slowly.",
    "The camera rises over a long river between two green hills, then it turns to the old town, "
    "where people walk over the bridge with lamps in their hands while it begins to snow.",  # more than 19 tokens
]

CORPUS = [
    "A small boat drifts across a quiet lake at dawn while the fog slowly lifts.",
    "A red fox runs through fresh snow between tall dark pines.",
    "The camera follows a child who flies a yellow kite on a windy beach.",
    "Two old friends sit in a café in Zürich and talk about the rain.",
    "A train crosses a high bridge over a deep green valley in the morning.",
    "Waves break on black rocks and white foam runs back into the sea.",
    "A chef cuts tomatoes, onions and bread on a wooden table in the kitchen.",
    "The city lights of 東京 shine at night; cars move like rivers of light.",
    "An astronaut walks over red sand and looks up at two small moons.",
    "A potter turns wet clay on a wheel; her hands are grey and careful.",
    "Leaves fall from an old oak tree, and a squirrel hides nuts below it.",
    "A glass of water stands on a window sill in the warm light of the evening.",
    "The camera rises slowly over a river, then turns to the old town.",
    "People walk over the bridge with lamps in their hands while it begins to snow.",
    "A blue robot waters the plants in a green house full of ferns.",
    "Sunlight passes through coral and a shoal of silver fish turns at once.",
    "Smoke of incense curls in front of a painted wall, in close-up.",
    "A black cat sleeps on a red sofa; its tail moves now and then.",
    "A violin player stands alone on a stage, the hall is empty and dark.",
    "Bees fly from flower to flower in a garden full of lavender.",
    "A horse gallops along the shore, water splashes in slow motion.",
    "Low quality, blurry, dark, noisy, out of focus, bad colours.",
    "Slow zoom on a steaming cup of tea next to an open book.",
    "Time lapse of clouds that pass over the snowy top of a mountain.",
    "An origami crane unfolds itself and becomes a sheet of white paper.",
    "A lighthouse turns its beam through the storm; rain hits the lens.",
    "A façade with blue doors, a naïve painting, a señor with a hat.",
    "Children run after a ball between the houses of a narrow street.",
    "A hot air balloon lands in a field of wheat, seen from above.",
    "The dancer jumps, turns in the air and lands without a sound.",
]

_TRANSFORMER = dict(text_embed_dim=32, time_embed_dim=24, patch_size=2)
_VAE = dict(down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4,
            norm_num_groups=4, norm_eps=1e-6)

KINDS = {
    "sincos": dict(  # like CogVideoX-2b; the size of the video is the checkpoint's default
        seed=10, dtype=torch.float32, max_shard_size="10GB", normalization="nmt_nfkc", max_length=19,
        t5=dict(num_layers=3),
        transformer=dict(
            _TRANSFORMER, num_attention_heads=5, attention_head_dim=16, num_layers=2, in_channels=4, out_channels=4,
            max_text_seq_length=19, sample_frames=9, sample_height=14, sample_width=10),
        vae=dict(_VAE, block_out_channels=(4, 8, 8, 12), layers_per_block=1, latent_channels=4,
                 sample_height=112, sample_width=80, scaling_factor=1.15258426),
        contrast=0.45, vae_grid=(7, 5), scheduler="CogVideoXDDIMScheduler", snr_shift=3.0,
        height=112, width=80, num_frames=9, steps=4, guidance=6.0, dynamic=False,
        texts=[0, 1, 2, 5], clips=[dict(prompt=1, negative=0, seed=42), dict(prompt=2, negative=0, seed=7)]),
    "rotary": dict(  # like CogVideoX-5b; the grid differs from the default one, so rotary positions are fractional
        seed=20, dtype=torch.bfloat16, max_shard_size="350KB", normalization="identity", max_length=19,
        t5=dict(num_layers=5),
        transformer=dict(
            _TRANSFORMER, num_attention_heads=7, attention_head_dim=16, num_layers=2, in_channels=4, out_channels=4,
            max_text_seq_length=19, sample_frames=13, sample_height=12, sample_width=20,
            use_rotary_positional_embeddings=True),
        vae=dict(_VAE, block_out_channels=(8, 8, 16, 16), layers_per_block=2, latent_channels=4,
                 sample_height=96, sample_width=160, scaling_factor=0.7),
        contrast=0.45, vae_grid=(7, 3), scheduler="CogVideoXDPMScheduler", snr_shift=1.0,
        height=112, width=48, num_frames=13, steps=5, guidance=6.0, dynamic=True,
        texts=[0, 2, 4, 5], clips=[dict(prompt=2, negative=0, seed=42), dict(prompt=4, negative=0, seed=7)]),
    "v1_5": dict(  # like CogVideoX1.5-5B: patches of two frames, 5 latent frames padded to 6
        seed=30, dtype=torch.float16, max_shard_size="10GB", normalization="identity", max_length=226,
        t5=dict(num_layers=3),
        transformer=dict(
            _TRANSFORMER, num_attention_heads=3, attention_head_dim=64, num_layers=1, in_channels=8, out_channels=8,
            max_text_seq_length=226, sample_frames=17, sample_height=20, sample_width=20,
            patch_size_t=2, patch_bias=False, use_rotary_positional_embeddings=True),
        vae=dict(_VAE, block_out_channels=(4, 8, 8, 12), layers_per_block=1, latent_channels=8,
                 sample_height=160, sample_width=160, scaling_factor=0.7, invert_scale_latents=True),
        contrast=0.45, vae_grid=(7, 3), scheduler="CogVideoXDPMScheduler", snr_shift=1.0,
        height=80, width=48, num_frames=17, steps=6, guidance=6.0, dynamic=False,
        texts=[0, 1, 2, 3], clips=[dict(prompt=1, negative=3, seed=42), dict(prompt=2, negative=0, seed=7)]),
}

IMAGE_KINDS = {
    "i2v": dict(  # like CogVideoX-5b-I2V: rotary and learned positions, for the checkpoint's size and length only
        seed=40, dtype=torch.bfloat16, max_shard_size="10GB", normalization="identity", max_length=19,
        t5=dict(num_layers=2),
        transformer=dict(
            _TRANSFORMER, num_attention_heads=5, attention_head_dim=16, num_layers=2, in_channels=8, out_channels=4,
            max_text_seq_length=19, sample_frames=9, sample_height=14, sample_width=10,
            use_rotary_positional_embeddings=True, use_learned_positional_embeddings=True),
        vae=dict(_VAE, block_out_channels=(4, 8, 8, 12), layers_per_block=1, latent_channels=4,
                 sample_height=112, sample_width=80, scaling_factor=0.7),
        contrast=0.45, vae_grid=(7, 5), scheduler="CogVideoXDPMScheduler", snr_shift=1.0,
        height=112, width=80, num_frames=9, steps=4, guidance=6.0, dynamic=True,
        texts=[0, 1, 2, 5], clips=[dict(prompt=1, negative=0, seed=42), dict(prompt=2, negative=0, seed=7)]),
    "i2v_1_5": dict(  # like CogVideoX1.5-5B-I2V: ofs embedding, patches of two frames, 5 latent frames padded to 6
        seed=50, dtype=torch.bfloat16, max_shard_size="10GB", normalization="identity", max_length=19,
        t5=dict(num_layers=2),
        transformer=dict(
            _TRANSFORMER, num_attention_heads=7, attention_head_dim=16, num_layers=1, in_channels=8, out_channels=4,
            max_text_seq_length=19, sample_frames=17, sample_height=20, sample_width=20, ofs_embed_dim=24,
            patch_size_t=2, patch_bias=False, use_rotary_positional_embeddings=True),
        vae=dict(_VAE, block_out_channels=(4, 8, 8, 12), layers_per_block=1, latent_channels=4,
                 sample_height=160, sample_width=160, scaling_factor=0.7, invert_scale_latents=True),
        contrast=0.45, vae_grid=(7, 3), scheduler="CogVideoXDDIMScheduler", snr_shift=1.0,
        height=80, width=48, num_frames=17, steps=4, guidance=6.0, dynamic=False,
        texts=[0, 1, 2, 3], clips=[dict(prompt=1, negative=3, seed=42), dict(prompt=2, negative=0, seed=7)]),
}
