"""Names and shapes of all tensors of the classes in an Open-Sora folder, from the fields of their constructors."""

TRANSFORMER_FIELDS = {
    "STDiT": dict(
        input_size=[16, 32, 32], in_channels=4, patch_size=[1, 2, 2], hidden_size=1152, depth=28, num_heads=16,
        mlp_ratio=4.0, class_dropout_prob=0.1, pred_sigma=True, caption_channels=4096, model_max_length=120,
        space_scale=1.0, time_scale=1.0),
    "STDiT3": dict(
        input_size=[None, None, None], input_sq_size=512, in_channels=4, patch_size=[1, 2, 2], hidden_size=1152,
        depth=28, num_heads=16, mlp_ratio=4.0, class_dropout_prob=0.1, pred_sigma=True, caption_channels=4096,
        model_max_length=300, qk_norm=True),
}
SPATIAL_VAE_FIELDS = dict(  # of SDXL's VAE, which is the spatial VAE of Open-Sora 1.2
    act_fn="silu", block_out_channels=[128, 256, 512, 512], down_block_types=["DownEncoderBlock2D"] * 4,
    up_block_types=["UpDecoderBlock2D"] * 4, in_channels=3, out_channels=3, latent_channels=4, layers_per_block=2,
    norm_num_groups=32, sample_size=512, scaling_factor=0.13025)
TEMPORAL_VAE_FIELDS = dict(
    in_out_channels=4, latent_embed_dim=4, embed_dim=4, filters=128, num_res_blocks=4,
    channel_multipliers=[1, 2, 2, 4], temporal_downsample=[False, True, True], num_groups=32)
TABLES = ("pos_embed", "pos_embed_temporal", "rope.freqs")  # always computed; those in files are ignored


class Shapes(dict):
    """name -> shape, with methods that add the tensors of common layers."""

    def linear(self, name, inputs, outputs):
        self[f"{name}.weight"], self[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(self, name, channels):
        self[f"{name}.weight"], self[f"{name}.bias"] = (channels,), (channels,)

    def conv(self, name, inputs, outputs, kernel, bias=True):
        self[f"{name}.weight"] = (outputs, inputs, *kernel)
        if bias:
            self[f"{name}.bias"] = (outputs,)

    def prefixed(self, prefix):
        return Shapes({prefix + name: shape for name, shape in self.items()})


def transformer(class_name, fields):
    """Shapes of STDiT of Open-Sora 1.0 or STDiT3 of 1.2, without the computed tables."""
    shapes, width = Shapes(), fields["hidden_size"]
    features = fields["patch_size"][0] * fields["patch_size"][1] * fields["patch_size"][2]
    shapes.conv("x_embedder.proj", fields["in_channels"], width, fields["patch_size"])
    for name in ("t_embedder", "fps_embedder") if class_name == "STDiT3" else ("t_embedder",):
        shapes.linear(f"{name}.mlp.0", 256, width)
        shapes.linear(f"{name}.mlp.2", width, width)
    shapes.linear("t_block.1", width, 6 * width)
    shapes["y_embedder.y_embedding"] = (fields["model_max_length"], fields["caption_channels"])
    shapes.linear("y_embedder.y_proj.fc1", fields["caption_channels"], width)
    shapes.linear("y_embedder.y_proj.fc2", width, width)
    for block in range(fields["depth"]):
        if class_name == "STDiT3":
            for kind in ("spatial_blocks", "temporal_blocks"):
                _block(shapes, f"{kind}.{block}", fields, ["attn"], fields["qk_norm"])
        else:
            _block(shapes, f"blocks.{block}", fields, ["attn", "attn_temp"], False)
    shapes["final_layer.scale_shift_table"] = (2, width)
    shapes.linear("final_layer.linear", width, features * fields["in_channels"] * (2 if fields["pred_sigma"] else 1))
    return shapes


def _block(shapes, name, fields, attentions, qk_norm):
    width = fields["hidden_size"]
    shapes[f"{name}.scale_shift_table"] = (6, width)
    for attention in attentions:
        shapes.linear(f"{name}.{attention}.qkv", width, 3 * width)
        shapes.linear(f"{name}.{attention}.proj", width, width)
        if qk_norm:
            for norm in ("q_norm", "k_norm"):
                shapes[f"{name}.{attention}.{norm}.weight"] = (width // fields["num_heads"],)
    shapes.linear(f"{name}.cross_attn.q_linear", width, width)
    shapes.linear(f"{name}.cross_attn.kv_linear", width, 2 * width)
    shapes.linear(f"{name}.cross_attn.proj", width, width)
    hidden = int(width * fields["mlp_ratio"])
    shapes.linear(f"{name}.mlp.fc1", width, hidden)
    shapes.linear(f"{name}.mlp.fc2", hidden, width)


def autoencoder_kl(fields):
    """Shapes of diffusers' AutoencoderKL."""
    shapes, widths = Shapes(), list(fields["block_out_channels"])
    latent, layers = fields["latent_channels"], fields["layers_per_block"]
    attention = fields.get("mid_block_add_attention", True)

    def resnet(name, inputs, outputs):
        shapes.norm(f"{name}.norm1", inputs)
        shapes.conv(f"{name}.conv1", inputs, outputs, (3, 3))
        shapes.norm(f"{name}.norm2", outputs)
        shapes.conv(f"{name}.conv2", outputs, outputs, (3, 3))
        if inputs != outputs:
            shapes.conv(f"{name}.conv_shortcut", inputs, outputs, (1, 1))

    def half(name, blocks, widths, layers, moved):
        inputs = widths[0]
        for i, outputs in enumerate(widths):
            for j in range(layers):
                resnet(f"{name}.{blocks}.{i}.resnets.{j}", inputs if j == 0 else outputs, outputs)
            inputs = outputs
            if i + 1 < len(widths):
                shapes.conv(f"{name}.{blocks}.{i}.{moved}.0.conv", outputs, outputs, (3, 3))
        middle = fields["block_out_channels"][-1]
        for j in range(2):
            resnet(f"{name}.mid_block.resnets.{j}", middle, middle)
        if attention:
            shapes.norm(f"{name}.mid_block.attentions.0.group_norm", middle)
            for part in ("to_q", "to_k", "to_v", "to_out.0"):
                shapes.linear(f"{name}.mid_block.attentions.0.{part}", middle, middle)
        shapes.norm(f"{name}.conv_norm_out", widths[-1])

    shapes.conv("encoder.conv_in", fields["in_channels"], widths[0], (3, 3))
    half("encoder", "down_blocks", widths, layers, "downsamplers")
    shapes.conv("encoder.conv_out", widths[-1], 2 * latent, (3, 3))
    shapes.conv("decoder.conv_in", latent, widths[-1], (3, 3))
    half("decoder", "up_blocks", widths[::-1], layers + 1, "upsamplers")
    shapes.conv("decoder.conv_out", widths[0], fields["out_channels"], (3, 3))
    if fields.get("use_quant_conv", True):
        shapes.conv("quant_conv", 2 * latent, 2 * latent, (1, 1))
    if fields.get("use_post_quant_conv", True):
        shapes.conv("post_quant_conv", latent, latent, (1, 1))
    return shapes


def vae_temporal(fields):
    """Shapes of VAE_Temporal of Open-Sora 1.2 (causal convolutions over frames)."""
    shapes, layers = Shapes(), fields["num_res_blocks"]
    channels, latent = fields["in_out_channels"], fields["latent_embed_dim"]
    widths = [fields["filters"] * m for m in fields["channel_multipliers"]]

    def conv(name, inputs, outputs, size=3, bias=True):
        shapes.conv(f"{name}.conv", inputs, outputs, (size,) * 3, bias)

    def resnets(name, inputs, outputs):
        for j in range(layers):
            shapes.norm(f"{name}.{j}.norm1", inputs)
            conv(f"{name}.{j}.conv1", inputs, outputs, bias=False)
            shapes.norm(f"{name}.{j}.norm2", outputs)
            conv(f"{name}.{j}.conv2", outputs, outputs, bias=False)
            if inputs != outputs:
                conv(f"{name}.{j}.conv3", inputs, outputs, size=1, bias=False)
            inputs = outputs

    conv("encoder.conv_in", channels, fields["filters"], bias=False)
    inputs = fields["filters"]
    for i, outputs in enumerate(widths):
        resnets(f"encoder.block_res_blocks.{i}", inputs, outputs)
        if i + 1 < len(widths) and fields["temporal_downsample"][i]:
            conv(f"encoder.conv_blocks.{i}", outputs, outputs)
        inputs = outputs
    resnets("encoder.res_blocks", inputs, inputs)
    shapes.norm("encoder.norm1", inputs)
    conv("encoder.conv2", inputs, 2 * latent, size=1)
    conv("quant_conv", 2 * latent, 2 * fields["embed_dim"], size=1)
    conv("post_quant_conv", fields["embed_dim"], latent, size=1)
    conv("decoder.conv1", latent, inputs)
    resnets("decoder.res_blocks", inputs, inputs)
    for i in reversed(range(len(widths))):
        resnets(f"decoder.block_res_blocks.{i}", inputs, widths[i])
        inputs = widths[i]
        if i > 0 and fields["temporal_downsample"][i - 1]:
            conv(f"decoder.conv_blocks.{i - 1}", inputs, 2 * inputs)
    shapes.norm("decoder.norm1", inputs)
    conv("decoder.conv_out", inputs, channels)
    return shapes


def t5_encoder(config):
    """Shapes of the encoder of T5 1.1 (gated feed-forward, no biases)."""
    shapes, width = Shapes(), config["d_model"]
    inner = config["num_heads"] * config["d_kv"]
    shapes["shared.weight"] = (config["vocab_size"], width)
    for i in range(config["num_layers"]):
        name = f"encoder.block.{i}.layer"
        for part in "qkv":
            shapes[f"{name}.0.SelfAttention.{part}.weight"] = (inner, width)
        shapes[f"{name}.0.SelfAttention.o.weight"] = (width, inner)
        if i == 0:
            buckets = config.get("relative_attention_num_buckets", 32)
            shapes[f"{name}.0.SelfAttention.relative_attention_bias.weight"] = (buckets, config["num_heads"])
        shapes[f"{name}.0.layer_norm.weight"] = (width,)
        for part in ("wi_0", "wi_1"):
            shapes[f"{name}.1.DenseReluDense.{part}.weight"] = (config["d_ff"], width)
        shapes[f"{name}.1.DenseReluDense.wo.weight"] = (width, config["d_ff"])
        shapes[f"{name}.1.layer_norm.weight"] = (width,)
    shapes["encoder.final_layer_norm.weight"] = (width,)
    return shapes
