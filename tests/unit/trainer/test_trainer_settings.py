import pytest

from e2e.trainer.refusals import RefusedStartError
from e2e.trainer.settings import Settings, settings_from

ENVIRONMENT = {"RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1"}
MINDSPORE = {
    "MINDIO_FOR_MINDSPORE": "1", "RANK_ID": "1", "RANK_SIZE": "8", "MS_NODE_ID": "1", "MS_SCHED_HOST": "127.0.0.1",
    "MS_TFT_IP": "127.0.0.1", "MS_TFT_PORT": "8000",
}  # fmt: skip
DISTRIBUTED = ["--tensor-model-parallel-size", "2", "--use-distributed-optimizer"]


def settings(*arguments: str, **environment: str) -> Settings:
    return settings_from([*DISTRIBUTED, *arguments], ENVIRONMENT | environment)


def test_sizes_follow_from_world_and_flags() -> None:
    found = settings("--pipeline-model-parallel-size", "2", "--global-batch-size", "32", HIGH_AVAILABILITY="dump")
    assert (found.layout.tensor, found.layout.data, found.layout.pipeline, found.layout.copies) == (2, 2, 2, 2)
    assert found.micro_batches == 8


def test_copies_follow_from_the_kind_of_optimizer() -> None:
    assert settings("--distributed-optimizer-no-replica", HIGH_AVAILABILITY="dump").layout.copies == 1
    assert settings().layout.copies == 1, "nobody keeps two without high availability"
    assert settings_from(["--tensor-model-parallel-size", "2"], ENVIRONMENT).layout.copies == 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (False, False, False)),
        ("dump", (False, False, False)),
        ("retry,recover", (True, True, False)),
        ("dump,elastic-training", (False, False, True)),
        ("exit,nonsense", (False, False, False)),
    ],
)
def test_words_of_high_availability_add_switches(words: str, expected: tuple[bool, bool, bool]) -> None:
    found = settings(HIGH_AVAILABILITY=words)
    assert (found.enable_uce, found.enable_arf, found.enable_zit) == expected


def test_words_take_no_flag_away() -> None:
    assert settings("--enable-high-availability", "--enable-worker-reboot", HIGH_AVAILABILITY="dump").enable_arf


@pytest.mark.parametrize(
    ("arguments", "environment", "is_on"),
    [
        ([], {}, False),
        ([], {"HIGH_AVAILABILITY": ""}, False),
        ([], {"HIGH_AVAILABILITY": "retry"}, True),
        (["--enable-high-availability"], {}, True),
        ([], {**MINDSPORE, "MS_ENABLE_TFT": "{TTP:1}"}, True),
        ([], {**MINDSPORE, "MS_ENABLE_TFT": "{}"}, False),
        ([], {**MINDSPORE, "HIGH_AVAILABILITY": "dump"}, False),
    ],
)
def test_mindio_is_spoken_to_where_it_is_switched_on(
    arguments: list[str], environment: dict[str, str], is_on: bool
) -> None:
    assert settings(*arguments, **environment).protected is is_on


@pytest.mark.parametrize("environment", [{"HIGH_AVAILABILITY": "recover"}, {"HIGH_AVAILABILITY": "elastic-training"}])
def test_high_availability_refuses_data_parallel_1(environment: dict[str, str]) -> None:
    """As MindSpeed-LLM does; without the variable the same training starts."""
    alone = {"RANK": "0", "WORLD_SIZE": "2"}
    assert settings(**alone).layout.data == 1
    with pytest.raises(RefusedStartError, match="do not support the size of dp_cp_ranks 1"):
        settings(**alone, **environment)


def test_launcher_environment() -> None:
    place = settings(
        HAJOB_INCARNATION="3", TORCHELASTIC_RESTART_COUNT="2", POD_IP="127.3.2.1", TTP_ADDR="127.3.2.1", TTP_PORT="8001"
    ).place
    assert (place.incarnation, place.attempt, place.address, place.controller_port) == (3, 2, "127.3.2.1", 8001)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--global-batch-size", "30"], "--global-batch-size 30 must be a multiple"),
        (["--pipeline-model-parallel-size", "2", "--num-layers", "3"], "--num-layers 3"),
        (["--ffn-hidden-size", "7"], "--ffn-hidden-size 7"),
    ],
)
def test_what_does_not_fit_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(*arguments)
