"""Tiny random models of families that attend in code of their own, or are joined from others, with inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from transformers.models import bark, clvp, got_ocr2, granite_speech, slanext
from transformers.models.clvp import modeling_clvp
from transformers.models.got_ocr2 import modeling_got_ocr2
from transformers.models.granite_speech import modeling_granite_speech
from transformers.models.slanext import modeling_slanext

from models.families import inputs_of, tiny_model

Made = tuple[Any, dict[str, torch.Tensor]]

TEXT: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48,
}  # fmt: skip
LONG = {**TEXT, "max_position_embeddings": 64}
LAYERS = {name: number for name, number in TEXT.items() if name != "vocab_size"}
IMAGE = {**LAYERS, "image_size": 32, "patch_size": 8}
TWO: dict[str, Any] = {
    "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
SPOKEN: dict[str, Any] = {
    "vocab_size": 96, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 32,
}  # fmt: skip
SWIN: dict[str, Any] = {
    "image_size": 32,
    "window_size": 4,
    "embed_dim": 8,
    "depths": [1, 1],
    "num_heads": [2, 2],
}
PYRAMID: dict[str, Any] = {
    "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "num_attention_heads": [2, 4],
    "strides": [4, 2], "mlp_ratios": [2, 2],
}  # fmt: skip
WINDOWS: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 4,
    "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 48, "output_channels": 16,
}  # fmt: skip
GROUPS: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32, "patch_size": 8,
    "depths": [1, 1], "num_group_tokens": [4, 0], "num_output_groups": [4, 2], "assign_mlp_ratio": [0.5, 2],
}  # fmt: skip
LOCAL = {"attention_types": [[["global", "local"], 1]], "window_size": 8}


def ids(n: int = 21) -> torch.Tensor:
    return torch.randint(3, 90, (2, n), generator=torch.Generator().manual_seed(3))


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def pixels(side: int = 32) -> torch.Tensor:
    return drawn(2, 3, side, side) * 2 - 1


def boxes() -> torch.Tensor:
    """Corners of a box for each token, the lesser first."""
    corners = torch.randint(0, 60, (2, 21, 4), generator=torch.Generator().manual_seed(2))
    return corners.sort(-1).values


def resnet() -> Any:
    return hf.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 32, 48],
        depths=[1] * 4,
        out_features=["stage2", "stage3", "stage4"],
    )


def swin() -> Any:
    sizes = {**SWIN, "image_size": 64, "patch_size": 4, "depths": [1] * 4, "num_heads": [2] * 4}
    return hf.SwinConfig(**sizes, out_features=["stage1", "stage2", "stage3", "stage4"])


def detector(kind: Any, config: Any, **sizes: Any) -> Callable[[], Made]:
    given = {**TWO, "d_model": 32, "num_queries": 5, "use_timm_backbone": False, **sizes}
    return lambda: (kind(config(backbone_config=resnet(), **given)), {"pixel_values": pixels(64)})


def grounded(kind: Any, config: Any) -> Callable[[], Made]:
    given = {**TWO, "d_model": 32, "num_queries": 5, "max_text_len": 32}
    return lambda: (
        kind(config(backbone_config=swin(), text_config=hf.BertConfig(**LONG), **given)),
        {"input_ids": ids(), "pixel_values": pixels(64)},
    )


def segmenter(kind: Any, config: Any, **sizes: Any) -> Any:
    return kind(config(
        backbone_config=swin(), hidden_dim=32, encoder_feedforward_dim=32, encoder_layers=1, decoder_layers=2,
        num_attention_heads=4, dim_feedforward=32, num_queries=5, **sizes,
    ))  # fmt: skip


def blip(kind: Any) -> Callable[[], Made]:
    text = {**LONG, "encoder_hidden_size": 32}
    return lambda: (
        kind(hf.BlipConfig(text_config=text, vision_config=IMAGE, projection_dim=16)),
        {"input_ids": ids(), "pixel_values": pixels()},
    )


def joined(encoder: Any, decoder: Any, kind: Any, given: dict[str, torch.Tensor]) -> Made:
    return kind(encoder=encoder, decoder=decoder), {**given, "decoder_input_ids": ids(7)}


def bert(**options: Any) -> Any:
    return hf.BertConfig(**LONG, **options)


MADE: dict[str, Callable[[], Made]] = {
    "blip": blip(hf.BlipModel),
    "blip writing": blip(hf.BlipForConditionalGeneration),
    "layoutlmv3": lambda: (
        hf.LayoutLMv3Model(
            hf.LayoutLMv3Config(
                **LONG,
                max_2d_position_embeddings=64,
                coordinate_size=6,
                shape_size=4,
                input_size=32,
                patch_size=8,
            )
        ),
        {"input_ids": ids(), "bbox": boxes(), "pixel_values": pixels()},
    ),
    "vilt": lambda: (
        hf.ViltModel(hf.ViltConfig(**TEXT, image_size=32, patch_size=8)),
        {"input_ids": ids(), "pixel_values": pixels()},
    ),
    "bros": lambda: (
        hf.BrosModel(hf.BrosConfig(**{**TEXT, "hidden_size": 64})),
        {"input_ids": ids(), "bbox": drawn(2, 21, 8), "attention_mask": torch.ones(2, 21)},
    ),
    "speecht5": lambda: (
        hf.SpeechT5ForSpeechToText(
            hf.SpeechT5Config(
                vocab_size=96,
                hidden_size=32,
                **TWO,
                conv_dim=[16],
                conv_stride=[5],
                conv_kernel=[10],
                num_conv_pos_embeddings=4,
                num_conv_pos_embedding_groups=2,
            )
        ),
        {"input_values": drawn(2, 400), "decoder_input_ids": ids(7)},
    ),
    "swinv2": lambda: (hf.Swinv2Model(hf.Swinv2Config(**SWIN, patch_size=4)), {"pixel_values": pixels()}),
    "donut-swin": lambda: (
        hf.DonutSwinModel(hf.DonutSwinConfig(**SWIN, patch_size=4)),
        {"pixel_values": pixels()},
    ),
    "swin2sr": lambda: (
        hf.Swin2SRModel(hf.Swin2SRConfig(**SWIN, patch_size=1)),
        {"pixel_values": pixels(16)},
    ),
    "pvt": lambda: (
        hf.PvtModel(
            hf.PvtConfig(**PYRAMID, image_size=32, sequence_reduction_ratios=[2, 1], patch_sizes=[4, 2])
        ),
        {"pixel_values": pixels()},
    ),
    "pvt_v2": lambda: (
        hf.PvtV2Model(hf.PvtV2Config(**PYRAMID, image_size=32, sr_ratios=[2, 1], patch_sizes=[7, 3])),
        {"pixel_values": pixels()},
    ),
    "glpn": lambda: (
        hf.GLPNModel(hf.GLPNConfig(**PYRAMID, sr_ratios=[2, 1], patch_sizes=[4, 2])),
        {"pixel_values": pixels()},
    ),
    "timesformer": lambda: (
        hf.TimesformerModel(hf.TimesformerConfig(**IMAGE, num_frames=2)),
        {"pixel_values": drawn(2, 2, 3, 32, 32)},
    ),
    "perceiver": lambda: (
        hf.PerceiverModel(
            hf.PerceiverConfig(
                num_latents=8,
                d_latents=32,
                d_model=32,
                num_blocks=1,
                num_self_attends_per_block=2,
                num_self_attention_heads=4,
                num_cross_attention_heads=4,
                qk_channels=32,
                v_channels=32,
            )
        ),
        {"inputs": drawn(2, 21, 32)},
    ),
    "funnel": lambda: (
        hf.FunnelModel(
            hf.FunnelConfig(
                vocab_size=96,
                block_sizes=[1, 1],
                num_decoder_layers=1,
                d_model=32,
                n_head=4,
                d_head=8,
                d_inner=48,
            )
        ),
        {"input_ids": ids()},
    ),
    "flaubert": lambda: (
        hf.FlaubertModel(hf.FlaubertConfig(vocab_size=96, emb_dim=32, n_layers=2, n_heads=4)),
        {"input_ids": ids()},
    ),
    "mgp-str": lambda: (
        hf.MgpstrModel(
            hf.MgpstrConfig(
                image_size=[32, 32],
                patch_size=8,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_token_length=5,
            )
        ),
        {"pixel_values": pixels()},
    ),
    "levit": lambda: (
        hf.LevitModel(
            hf.LevitConfig(
                image_size=64,
                patch_size=16,
                hidden_sizes=[16, 32, 48],
                num_attention_heads=[2, 4, 4],
                depths=[1, 1, 1],
                key_dim=[4, 4, 4],
            )
        ),
        {"pixel_values": pixels(64)},
    ),
    "cvt": lambda: (
        hf.CvtModel(hf.CvtConfig(embed_dim=[16, 32, 48], num_heads=[1, 2, 4], depth=[1, 2, 3])),
        {"pixel_values": pixels(64)},
    ),
    "mobilevitv2": lambda: (
        hf.MobileViTV2Model(hf.MobileViTV2Config(image_size=64)),
        {"pixel_values": pixels(64)},
    ),
    "lxmert": lambda: (
        hf.LxmertModel(
            hf.LxmertConfig(
                vocab_size=96,
                hidden_size=32,
                num_attention_heads=4,
                intermediate_size=48,
                l_layers=1,
                x_layers=1,
                r_layers=1,
                visual_feat_dim=16,
                visual_pos_dim=4,
            )
        ),
        {"input_ids": ids(), "visual_feats": drawn(2, 5, 16), "visual_pos": drawn(2, 5, 4)},
    ),
    "flava": lambda: (
        hf.FlavaModel(
            hf.FlavaConfig(
                text_config=TEXT,
                image_config=IMAGE,
                multimodal_config=LAYERS,
                hidden_size=32,
                projection_dim=16,
            )
        ),
        {"input_ids": ids(), "pixel_values": pixels(), "attention_mask": torch.ones(2, 21)},
    ),
    "trocr": lambda: (hf.TrOCRForCausalLM(hf.TrOCRConfig(**SPOKEN)), {"input_ids": ids()}),
    "vision-encoder-decoder": lambda: joined(
        hf.ViTModel(hf.ViTConfig(**IMAGE)),
        hf.TrOCRForCausalLM(hf.TrOCRConfig(**SPOKEN, cross_attention_hidden_size=32)),
        hf.VisionEncoderDecoderModel,
        {"pixel_values": pixels()},
    ),
    "encoder-decoder": lambda: joined(
        hf.BertModel(bert(attn_implementation="eager")),
        hf.BertLMHeadModel(bert(is_decoder=True, add_cross_attention=True, attn_implementation="eager")),
        hf.EncoderDecoderModel,
        {"input_ids": ids()},
    ),
    "vits": lambda: (
        hf.VitsModel(
            hf.VitsConfig(
                vocab_size=96,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                ffn_dim=32,
                flow_size=16,
                spectrogram_bins=9,
                upsample_initial_channel=16,
                upsample_rates=[4, 4],
                upsample_kernel_sizes=[8, 8],
                prior_encoder_num_wavenet_layers=1,
                posterior_encoder_num_wavenet_layers=1,
                wavenet_dilation_rate=1,
                duration_predictor_filter_channels=16,
                use_stochastic_duration_prediction=False,
                noise_scale=0.0,
            )
        ),
        {"input_ids": ids()},
    ),
    "bark": lambda: (
        bark.BarkSemanticModel(
            bark.BarkSemanticConfig(
                input_vocab_size=96,
                output_vocab_size=96,
                hidden_size=32,
                num_layers=2,
                num_heads=4,
                block_size=64,
            )
        ),
        {"input_ids": ids()},
    ),
    "clvp": lambda: (
        modeling_clvp.ClvpEncoder(clvp.ClvpEncoderConfig(**{**TEXT, "hidden_size": 128}, projection_dim=16)),
        {"input_ids": ids()},
    ),
    "got_ocr2": lambda: (
        modeling_got_ocr2.GotOcr2VisionEncoder(got_ocr2.GotOcr2VisionConfig(**WINDOWS)),
        {"pixel_values": pixels()},
    ),
    "slanext": lambda: (
        modeling_slanext.SLANeXtVisionEncoder(slanext.SLANeXtVisionConfig(**WINDOWS)),
        {"pixel_values": pixels()},
    ),
    "granite_speech": lambda: (
        modeling_granite_speech.GraniteSpeechCTCEncoder(
            granite_speech.GraniteSpeechEncoderConfig(
                input_dim=16,
                num_layers=2,
                hidden_dim=32,
                num_heads=4,
                dim_head=8,
                output_dim=12,
                context_size=8,
                conv_kernel_size=3,
            )
        ),
        {"hidden_states": drawn(2, 24, 16)},
    ),
    "zoedepth": lambda: (
        hf.ZoeDepthForDepthEstimation(
            hf.ZoeDepthConfig(
                backbone_config=hf.BeitConfig(
                    **IMAGE, out_features=["stage1", "stage2"], reshape_hidden_states=False
                ),
                neck_hidden_sizes=[8, 8],
                reassemble_factors=[2, 1],
                fusion_hidden_size=8,
                bottleneck_features=8,
                num_attractors=[2, 1, 1, 1],
                bin_embedding_dim=8,
                num_relative_features=8,
                patch_transformer_hidden_size=8,
                patch_transformer_intermediate_size=8,
                patch_transformer_num_attention_heads=2,
            )
        ),
        {"pixel_values": pixels()},
    ),
    "superglue": lambda: (
        hf.SuperGlueForKeypointMatching(
            hf.SuperGlueConfig(
                hidden_size=256,
                keypoint_encoder_sizes=[16, 32],
                gnn_layers_types=["self", "cross"],
                num_attention_heads=4,
                sinkhorn_iterations=2,
            )
        ),
        {"pixel_values": drawn(1, 2, 3, 64, 64)},
    ),
    "seggpt": lambda: (
        hf.SegGptModel(
            hf.SegGptConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                image_size=[32, 16],
                patch_size=8,
                mlp_dim=48,
                intermediate_hidden_state_indices=[0, 1],
                merge_index=0,
                pretrain_image_size=16,
            )
        ),
        {"pixel_values": pixels(16), "prompt_pixel_values": pixels(16), "prompt_masks": pixels(16)},
    ),
    "bridgetower": lambda: (
        hf.BridgeTowerModel(
            hf.BridgeTowerConfig(
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                text_config=LONG,
                vision_config={"hidden_size": 64, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
            )
        ),
        {"input_ids": ids(), "pixel_values": pixels()},
    ),
    "clap": lambda: (
        hf.ClapAudioModel(
            hf.ClapAudioConfig(
                window_size=4,
                spec_size=64,
                num_mel_bins=16,
                patch_size=4,
                patch_stride=[4, 4],
                hidden_size=32,
                patch_embeds_hidden_size=16,
                depths=[1, 1],
                num_attention_heads=[2, 2],
            )
        ),
        {"input_features": drawn(1, 1, 40, 16)},
    ),
    "groupvit": lambda: (
        hf.GroupViTModel(
            hf.GroupViTConfig(
                text_config=LONG, vision_config=GROUPS, projection_dim=16, projection_intermediate_dim=32
            )
        ),
        {"input_ids": ids(), "pixel_values": pixels()},
    ),
    "detr": detector(hf.DetrForObjectDetection, hf.DetrConfig),
    "table-transformer": detector(hf.TableTransformerForObjectDetection, hf.TableTransformerConfig),
    "dab-detr": detector(hf.DabDetrForObjectDetection, hf.DabDetrConfig, hidden_size=32),
    "mask2former": lambda: (
        segmenter(hf.Mask2FormerModel, hf.Mask2FormerConfig, feature_size=32, mask_feature_size=32),
        {"pixel_values": pixels(64)},
    ),
    "oneformer": lambda: (
        segmenter(
            hf.OneFormerModel,
            hf.OneFormerConfig,
            conv_dim=32,
            mask_dim=32,
            text_encoder_width=16,
            text_encoder_num_layers=1,
            text_encoder_vocab_size=96,
            text_encoder_context_length=8,
            task_seq_len=8,
            is_training=False,
        ),
        {"pixel_values": pixels(64), "task_inputs": ids(8)},
    ),
    "grounding-dino": grounded(hf.GroundingDinoModel, hf.GroundingDinoConfig),
    "mm-grounding-dino": grounded(hf.MMGroundingDinoModel, hf.MMGroundingDinoConfig),
    "gpt_neo": lambda: (
        hf.GPTNeoModel(hf.GPTNeoConfig(vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, **LOCAL)),
        {"input_ids": ids()},
    ),
}
# Those that the names in families.py make small.
TINY = (
    "big_bird", "convbert", "cpmant", "fastspeech2_conformer", "fsmt", "gpt_neox_japanese", "imagegpt",
    "mobilevit", "mvp", "nystromformer", "sew-d", "squeezebert", "vitdet", "data2vec-audio", "data2vec-text",
    "data2vec-vision", "dpr",
)  # fmt: skip
# They return no maps, or maps of something else than the softmax that is recorded.
WITHOUT_MAPS = {
    "cvt": "returns none",
    "levit": "returns none",
    "groupvit": "returns only how it groups patches",
    "mobilevit": "returns none",
    "mobilevitv2": "returns none",
    "zoedepth": "returns none",
    "granite_speech": "returns none",
    "cpmant": "returns maps without the rows and columns of its prompt",
    "squeezebert": "returns scores",
}
# How many of the maps that a family returns are of points in an image, or soft assignments.
OTHERS = {"grounding-dino": 3, "mm-grounding-dino": 3}


def made(name: str) -> Made:
    """A model of a family and something for it to read, the same every time."""
    torch.manual_seed(0)
    model, given = MADE[name]() if name in MADE else (tiny_model(name), {})
    model = model.eval()
    if (
        any(part is not model and isinstance(part, hf.PreTrainedModel) for part in model.modules())
        or name in TINY
    ):
        model.set_attn_implementation("eager")
    return model, given or inputs_of(model)
