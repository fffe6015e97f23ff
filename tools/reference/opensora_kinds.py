"""The tiny checkpoints, and the texts, of make_opensora_data.py.

Sizes are chosen not to be divisible: 5 heads, 7 x 5 patches, 16 and 15 frames; Open-Sora 1.2 gets odd numbers of rows
and columns, which it pads. Names are those of the arguments of Open-Sora's constructors.
"""
import torch

PROMPTS = [
    "A small boat drifts across a quiet lake at dawn.",
    "A red fox runs.",
    "The camera rises over a long river between two green hills, then it turns to the old town, "
    "where people walk over the bridge with lamps in their hands while it begins to snow.",  # more than the limit
    "Waves break on black rocks, white foam runs back into the sea.",
]

_SPATIAL_VAE = dict(
    down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=4,
    layers_per_block=1, norm_num_groups=4, sample_size=256)

KINDS = {
    "v1_0": dict(
        seed=100, dtype=torch.float16, max_length=34,
        transformer=dict(
            input_size=[16, 14, 10], in_channels=4, patch_size=[1, 2, 2], hidden_size=40, depth=2, num_heads=5,
            mlp_ratio=4.0, class_dropout_prob=0.1, pred_sigma=True, caption_channels=32, model_max_length=34,
            space_scale=0.5, time_scale=2 / 3),
        scheduler=dict(num_sampling_steps=8, cfg_scale=7.0),
        vae=dict(_SPATIAL_VAE, block_out_channels=(4, 8, 8, 12), scaling_factor=0.18215),
        other_frames=15, clips=[dict(prompt=0, seed=42, steps=8), dict(prompt=1, seed=7, steps=100)]),
    "v1_0_wide": dict(  # many heads, and 16 x 16 patches as in the released model; tables are not stored
        seed=300, dtype=torch.float16, max_length=12, latents_seed=6,
        transformer=dict(
            input_size=[16, 32, 32], in_channels=4, patch_size=[1, 2, 2], hidden_size=32, depth=2, num_heads=16,
            mlp_ratio=4.0, class_dropout_prob=0.1, pred_sigma=True, caption_channels=24, model_max_length=12,
            space_scale=0.5, time_scale=1.0)),
    "v1_2": dict(
        seed=200, dtype=torch.bfloat16, max_length=44,
        transformer=dict(
            input_size=[None, None, None], input_sq_size=512, in_channels=4, patch_size=[1, 2, 2], hidden_size=40,
            depth=2, num_heads=5, mlp_ratio=4.0, class_dropout_prob=0.1, pred_sigma=True, caption_channels=32,
            model_max_length=44, qk_norm=True),
        scheduler=dict(num_sampling_steps=6, cfg_scale=7.0, use_timestep_transform=True),
        vae=dict(_SPATIAL_VAE, block_out_channels=(4, 8, 8, 12), scaling_factor=0.13025),
        temporal_vae=dict(
            in_out_channels=4, latent_embed_dim=4, embed_dim=4, filters=4, num_res_blocks=2,
            channel_multipliers=[1, 1, 2, 3], temporal_downsample=[False, True, True], num_groups=2),
        micro_frame_size=17, micro_batch_size=4, shift=[-0.10, 0.34, 0.27, 0.98], scale=[3.85, 2.32, 2.33, 3.06],
        height=104, width=72, num_frames=51, fps=24, aes=6.5,
        clips=[dict(prompt=0, seed=42, steps=6), dict(prompt=1, seed=7, steps=30)]),
}
