"""What a meter must know of a model: refold's own rows, what somebody set over them, and what is refused."""

from __future__ import annotations

import pytest

from refold_protocol.session.token_estimate import BUILT_IN, Density, MeterProfile, MeterRow, TokenMeterError, profile_for


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
def test_a_built_in_model_is_known_by_its_bare_name_whoever_serves_it(name: str) -> None:
    for model in (f"deepseek/{name}", f"mine/{name}"):
        assert profile_for(model, MeterRow()) == MeterProfile(model, 128_000, Density(4.0, "flat"))


def test_there_are_two_built_in_models_and_the_embedded_one() -> None:
    assert set(BUILT_IN) == {"deepseek-v4-flash", "deepseek-v4-pro"}
    assert profile_for("rehearsal/workspace", MeterRow()).window == 128_000


def test_what_is_set_goes_over_the_built_in_row_field_by_field() -> None:
    model = "deepseek/deepseek-v4-pro"
    assert profile_for(model, MeterRow(context_window=64_000)) == MeterProfile(model, 64_000, Density(4.0))
    assert profile_for(model, MeterRow(chars_per_token=2.5)) == MeterProfile(model, 128_000, Density(2.5))
    assert profile_for(model, MeterRow(density="script")) == MeterProfile(model, 128_000, Density(4.0, "script"))


def test_a_model_of_ones_own_needs_a_window_and_nothing_else() -> None:
    assert profile_for("local/small", MeterRow(8_192)) == MeterProfile("local/small", 8_192, Density(4.0))


@pytest.mark.parametrize("model", ["local/small", "x/deepseek-v4-pro-2", "deepseek-v4-pro", "x/y/deepseek-v4-pro"])
def test_a_model_without_a_window_is_refused_by_its_exact_name(model: str) -> None:
    with pytest.raises(TokenMeterError, match=f'context_window under \\[models."{model}"\\]') as caught:
        profile_for(model, MeterRow(chars_per_token=2))
    assert (caught.value.code, caught.value.model) == ("TOKEN_METER_MODEL_UNCONFIGURED", model)
    assert caught.value.error_kind == "model.unconfigured"
    assert caught.value.details == {"code": caught.value.code, "model": model}


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (MeterRow(0), "context_window"),
        (MeterRow(-5), "context_window"),
        (MeterRow(10, 0.0), "chars_per_token"),
        (MeterRow(10, float("nan")), "chars_per_token"),
        (MeterRow(10, float("inf")), "chars_per_token"),
        (MeterRow(10, 4.0, "dense"), "density"),  # pyright: ignore[reportArgumentType] - what no type checker has seen
    ],
)
def test_figures_that_cannot_be_are_refused_with_their_setting(row: MeterRow, field: str) -> None:
    with pytest.raises(TokenMeterError, match=rf"^models\.local/small\.{field}: ") as caught:
        profile_for("local/small", row)
    assert caught.value.code == "TOKEN_METER_INVALID_CONFIG"
    assert caught.value.error_kind == "config.invalid"
