"""Does what is kept go with its owner, and is its purpose written on it?"""

from __future__ import annotations

from plimsoll.render.config_map import config_map, owned_config_map
from plimsoll.render.labels import COMPONENT_LABEL, DEPLOYMENT_LABEL
from plimsoll.render.records import OwnerRef

OWNER = OwnerRef(
    api_version="plimsoll.dev/v1alpha1",
    kind="InferenceDeployment",
    name="chat",
    namespace="team",
    uid="u-1",
)


def test_texts_are_data_and_bytes_are_binary_data() -> None:
    plain = config_map({"name": "kept"}, {"a": "b"})
    assert {"a": "b"} == plain["data"]
    assert "binaryData" not in plain
    packed = config_map({"name": "kept"}, {"a": "Yg=="}, in_base64=True)
    assert {"a": "Yg=="} == packed["binaryData"]
    assert "data" not in packed


def test_it_belongs_to_its_deployment_and_says_what_it_keeps() -> None:
    metadata = owned_config_map(OWNER, "chat-facts", "inspection", {})["metadata"]
    assert ("chat-facts", "team") == (metadata["name"], metadata["namespace"])
    assert ["u-1"] == [ref["uid"] for ref in metadata["ownerReferences"]]
    assert ("chat", "inspection") == tuple(
        metadata["labels"][label] for label in (DEPLOYMENT_LABEL, COMPONENT_LABEL)
    )
