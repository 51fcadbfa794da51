"""What may be wanted of two devices and two models, and what is known of them beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ServedModel
from tests.builders import KIND, model_spec, served

DEVICES = ("d", "cpu")
SLICES = tuple(SliceSpec(f"{device}{number}", (), device=device) for device in DEVICES for number in (0, 1))
OTHERS = tuple(replace(spec, part=Share("mps", 50.0)) for spec in SLICES[:2])  # of the same names
VERSION = "of version 2"
"""The revision of another version of a model, and of none else."""
MODELS = tuple(served(model_spec(name, ("a", "b"), batch_max=1), ()) for name in ("m", "n"))
KNOWN = {  # all but what `n b` takes
    (spec.name, model, variant): Profile(
        model, variant, KIND, (Point(0, 1, 100, 100, REFINED_COUNT),), share=spec.share
    )
    for spec in SLICES
    for model, variant in (("m", "a"), ("m", "b"), ("n", "a"))
}


def wanted_of(
    models: tuple[ServedModel, ...], chosen: Mapping[SliceSpec, Sequence[DesiredReplica]]
) -> DesiredState:
    """With those of the replicas of which the models are served."""
    names = {model.name for model in models}
    chosen = {
        spec: several for spec, several in chosen.items() if spec not in OTHERS or _plain(spec) not in chosen
    }
    slices = (
        DesiredSlice(spec, tuple(one for one in several if one.model in names))
        for spec, several in chosen.items()
    )
    return DesiredState(tuple(slices), models)


def _plain(spec: SliceSpec) -> SliceSpec:
    return replace(spec, part=None)


served_models = st.lists(
    st.sampled_from(
        [
            *MODELS,
            *(replace(model, revision="new") for model in MODELS),
            *(replace(model, revision=VERSION, spec=replace(model.spec, version=2)) for model in MODELS),
            *(replace(model, isolate="always") for model in MODELS),
        ]
    ),
    unique_by=lambda model: model.name,
    max_size=2,
)
replicas = st.lists(
    st.builds(DesiredReplica, st.sampled_from("mn"), st.sampled_from("ab"), st.booleans()),
    unique_by=lambda one: (one.model, one.variant),
    max_size=3,
)
wanted_states = st.builds(
    wanted_of,
    served_models.map(tuple),
    st.dictionaries(st.sampled_from((*SLICES, *OTHERS)), replicas, max_size=3),
)
