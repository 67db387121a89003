"""A pod that prints kept output of a job without pods, made with the rights of the person who asks.

It has the template's volume, read only, its image and its user, and asks for no chip. It belongs to the job, so that
it goes with it, and ends by itself: whoever asked may be gone before it has been deleted.
"""

import copy
import json
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods.containers import trainer_container
from hajob.pods.rank_pod import innermost_mount, output_directory

CONTAINER: Final = "reader"
NAME_PREFIX: Final = "hajob-logs-"
DEADLINE_SECONDS: Final = 600
"""After this long the pod ends, whatever it waits for: pulling the image takes minutes at most."""
_TEMPLATE_FIELDS: Final = ("nodeSelector", "tolerations", "imagePullSecrets", "securityContext", "runtimeClassName")
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}

_SCRIPT: Final = """
cd "$1" || exit 1
attempt=$3
ranks=$2; if [ -n "$6" ]; then ranks="[0-9]*"; fi
if [ -z "$attempt" ]; then
  for each in $(ls | grep -x "[0-9]*" | sort -n); do ls "$each" | grep -q "^rank-$ranks\\." && attempt=$each; done
fi
steps="iteration +[0-9]+/|step:\\[ *[0-9]+/"
if [ -n "$6" ] && [ -n "$attempt" ] && ! cat "$attempt/rank-$2."* 2>/dev/null | grep -qE "$steps"; then
  found=$(grep -lE "$steps" "$attempt"/rank-*.log 2>/dev/null | sed "s/.*rank-//; s/\\..*//" | sort -n | head -n 1)
  if [ -n "$found" ]; then shift 2; set -- "$PWD" "$found" "$@"; fi
fi
if [ -z "$attempt" ] || ! ls "$attempt" 2>/dev/null | grep -q "^rank-$2\\."; then
  there=$(ls | grep -x "[0-9]*" | sort -n | tr '\\n' ' ')
  echo "nothing is kept of rank $2; attempts with output: $there"; exit 3
fi
files=$(ls "$attempt" | grep "^rank-$2\\..*log$" | sort -t. -k2,2n -k3,3n)
if [ -z "$3" ]; then
  if [ -n "$5" ]; then files=$(echo "$files" | tail -n 2 | head -n 1); else files=$(echo "$files" | tail -n 1); fi
fi
for each in $files; do
  if [ -f "$attempt/$each.1" ]; then cat "$attempt/$each.1"; fi
  cat "$attempt/$each"
done | if [ -n "$4" ]; then tail -n "$4"; else cat; fi
"""
"""Prints the files of one rank: of an attempt, or of its newest process, or of the one before.

For a shell, because the image is the user's. Arguments: directory, rank, attempt, number of last lines, anything for
the process before the newest, anything where another rank that prints steps is as good; what is not asked for is empty.
"""


def build_reader_pod(
    job: HATrainingJob, rank: int, attempt: int | None, tail: int | None, *, previous: bool, is_guess: bool = False
) -> Json:
    """Build the pod.

    Raises:
        ValueError: output is kept on no volume.
    """
    template = job.spec.template["spec"]
    trainer, directory = trainer_container(template), output_directory(job)
    mount = innermost_mount(trainer, directory)
    if mount is None:
        raise ValueError(f"{directory} is on no volume")
    volumes = [copy.deepcopy(each) for each in template.get("volumes") or [] if each["name"] == mount["name"]]
    asked = ["" if number is None else str(number) for number in (attempt, tail)]
    marks = ["previous" if previous else "", "guess" if is_guess else ""]
    container: Json = {
        "name": CONTAINER,
        "image": trainer["image"],
        "command": ["sh", "-c", _SCRIPT, "sh", directory, str(rank), *asked, *marks],
        "volumeMounts": [{**mount, "readOnly": True}],
        "resources": _RESOURCES,
    }
    container |= {key: copy.deepcopy(trainer[key]) for key in ("imagePullPolicy", "securityContext") if key in trainer}
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": job.metadata.name, "uid": job.metadata.uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": NAME_PREFIX,
            "namespace": job.metadata.namespace,
            "labels": {"app.kubernetes.io/name": "hajob-logs"},
            "ownerReferences": [owner],
        },
        "spec": {
            **{key: copy.deepcopy(template[key]) for key in _TEMPLATE_FIELDS if key in template},
            "containers": [container],
            "volumes": volumes,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
        },
    }


def commands_by_hand(pod: Json) -> str:
    """Return the commands that do the same, for somebody who has the rights."""
    namespace = pod["metadata"]["namespace"]
    return (
        f"pod=$(kubectl create -n {namespace} -o name -f - <<'EOF'\n{json.dumps(pod)}\nEOF\n)\n"
        f"kubectl wait -n {namespace} --for=jsonpath='{{.status.phase}}'=Succeeded --timeout=10m $pod; "
        f"kubectl logs -n {namespace} $pod; kubectl delete -n {namespace} $pod"
    )
