"""Training jobs of other kinds, shaped as their projects' samples; `HAJOB_SAMPLES` names a directory of real ones."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from hajob.api.base import Json

_CHIPS = {"huawei.com/Ascend910": 8}
_VOLUMES = """
- {name: output, nfs: {server: 10.0.0.1, path: /output}}
- {name: ranktable, hostPath: {path: /user/mindx-dl/ranktable/team.llama}}
- {name: dshm, emptyDir: {medium: Memory}}
"""


def pod(command: str = "cd /job/code; bash train.sh --tensor-model-parallel-size 8 --save /job/output") -> Json:
    """The pods of MindCluster's samples: chips, tables of the operator, and rules that keep them apart."""
    container: Json = {
        "name": "ascend",
        "image": "mindspeed-llm:2.3",
        "command": ["/bin/bash", "-c"],
        "args": [command],
        "env": [
            {"name": "XDL_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {
                "name": "ASCEND_VISIBLE_DEVICES",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['huawei.com/Ascend910']"}},
            },
            {"name": "TTP_PORT", "value": "8000"},
        ],
        "ports": [{"containerPort": 2222, "name": "ascendjob-port"}, {"containerPort": 8000, "name": "ttp-port"}],
        "resources": {"requests": {"cpu": "96", **_CHIPS}, "limits": dict(_CHIPS)},
        "volumeMounts": [
            {"name": "output", "mountPath": "/job/output"},
            {"name": "ranktable", "mountPath": "/user/serverid/devindex/config"},
            {"name": "dshm", "mountPath": "/dev/shm"},
        ],
        "livenessProbe": {"exec": {"command": ["true"]}},
    }
    apart = {"matchExpressions": [{"key": "job-name", "operator": "In", "values": ["llama"]}]}
    rules = [{"labelSelector": apart, "topologyKey": "kubernetes.io/hostname"}]
    return {
        "metadata": {"labels": {"ring-controller.atlas": "ascend-910b", "team": "nlp"}},
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": "OnFailure",
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rules}},
            "containers": [container],
            "volumes": yaml.safe_load(_VOLUMES),
        },
    }


def _plain_pod(*command: str, **container: object) -> Json:
    """The pods of Kubeflow's and JobSet's samples, which ask for no chips."""
    return {"spec": {"containers": [{"name": "node", "image": "torch:2.6", "command": list(command), **container}]}}


def _job(version: str, kind: str, spec: Json, **metadata: object) -> Json:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "llama", "namespace": "nlp", **metadata},
        "spec": spec,
    }


def ascend_job() -> Json:
    """An AscendJob of PyTorch with TaskD's switches."""
    labels = {"framework": "pytorch", "ring-controller.atlas": "ascend-910b", "fault-scheduling": "grace"}
    annotations = {"recover-strategy": "retry,recover,dump", "wait-reschedule-timeout": "900"}
    policy = {"backoffLimit": 3, "schedulingPolicy": {"minAvailable": 4, "queue": "training"}}
    roles = {"Master": {"replicas": 1, "template": pod()}, "Worker": {"replicas": 3, "template": pod()}}
    spec = {"schedulerName": "volcano", "runPolicy": policy, "successPolicy": "AllWorkers", "replicaSpecs": roles}
    return _job("mindxdl.gitee.com/v1", "AscendJob", spec, labels=labels, annotations=annotations)


def mindspore_ascend_job() -> Json:
    """An AscendJob of MindSpore, whose scheduler has no chips."""
    scheduler, worker = pod("bash run.sh"), pod("bash run.sh --output_dir /job/output")
    del scheduler["spec"]["containers"][0]["resources"]
    roles = {"Scheduler": {"replicas": 1, "template": scheduler}, "Worker": {"replicas": 2, "template": worker}}
    return _job("mindxdl.gitee.com/v1", "AscendJob", {"replicaSpecs": roles}, labels={"framework": "mindspore"})


def volcano_job() -> Json:
    """A Volcano Job of A3 nodes."""
    template = pod("TP=8 PP=2 CKPT_SAVE_DIR=/job/output bash pretrain.sh")
    template["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend910": "16"}}
    spec = {"minAvailable": 2, "queue": "training", "plugins": {"ssh": [], "svc": []}, "maxRetry": 3}
    return _job(
        "batch.volcano.sh/v1alpha1", "Job", spec | {"tasks": [{"name": "w", "replicas": 2, "template": template}]}
    )


def pytorch_job() -> Json:
    """A PyTorchJob that leaves its command to the image, and waits for a queue."""
    roles = {
        name: {"replicas": count, "template": {"spec": {"containers": [{"name": "pytorch", "image": "mnist:1"}]}}}
        for name, count in (("Master", 1), ("Worker", 3))
    }
    policy = {"suspend": True, "ttlSecondsAfterFinished": 600}
    return _job(
        "kubeflow.org/v1",
        "PyTorchJob",
        {"nprocPerNode": "8", "runPolicy": policy, "pytorchReplicaSpecs": roles},
        labels={"kueue.x-k8s.io/queue-name": "training"},
    )


def train_job() -> list[Json]:
    """A TrainJob with the runtime that it names, and somebody's patch."""
    replicated = {"name": "node", "template": {"spec": {"template": _plain_pod("torchrun", "old.py", env=[])}}}
    template = {"spec": {"replicatedJobs": [replicated]}}
    runtime = _job(
        "trainer.kubeflow.org/v1alpha1", "TrainingRuntime", {"mlPolicy": {"numNodes": 1}, "template": template}
    )
    patched = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": "training"}}}}}}
    patch = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patched]}}}}
    trainer = {
        "numNodes": 4,
        "numProcPerNode": 8,
        "command": ["torchrun", "train.py", "--save", "/ckpt"],
        "env": [{"name": "SEED", "value": "1"}],
        "resourcesPerNode": {"requests": {"cpu": "2"}},
    }
    spec = {"runtimeRef": {"name": "llama"}, "trainer": trainer, "runtimePatches": [patch]}
    return [runtime, _job("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)]


def job_set() -> Json:
    """A JobSet with a driver beside the workers."""
    workers = {"completions": 4, "parallelism": 4, "template": pod()}
    driver = {"template": _plain_pod("python", "drive.py")}
    jobs = [
        {"name": "driver", "template": {"spec": driver}},
        {"name": "workers", "replicas": 2, "template": {"spec": workers}},
    ]
    return _job("jobset.x-k8s.io/v1alpha2", "JobSet", {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": jobs})


def mpi_job() -> Json:
    """An MPIJob, whose launcher has the command."""
    line = [
        "mpirun",
        "-np",
        "16",
        "-bind-to",
        "none",
        "-x",
        "PATH",
        "-mca",
        "pml",
        "ob1",
        "python",
        "/job/train.py",
        "--lr=1",
    ]
    worker = pod()
    del worker["spec"]["containers"][0]["command"], worker["spec"]["containers"][0]["args"]
    roles = {
        "Launcher": {"replicas": 1, "template": _plain_pod(*line)},
        "Worker": {"replicas": 2, "template": worker},
    }
    return _job("kubeflow.org/v2beta1", "MPIJob", {"slotsPerWorker": 8, "mpiReplicaSpecs": roles})


def deployment() -> Json:
    """A training that is a Deployment, as MindCluster's samples with a rank table are."""
    return _job("apps/v1", "Deployment", {"replicas": 2, "template": pod()})


FILES: dict[str, list[Json]] = {
    "AscendJob": [ascend_job()],
    "AscendJob of MindSpore": [mindspore_ascend_job()],
    "Volcano Job": [volcano_job()],
    "PyTorchJob": [pytorch_job()],
    "TrainJob": train_job(),
    "JobSet": [job_set()],
    "MPIJob": [mpi_job()],
    "Deployment": [deployment()],
}
"""The objects of one file each."""


def real_samples() -> list[Path]:
    """Return the manifests below `HAJOB_SAMPLES`; none where it is not set."""
    directory = os.environ.get("HAJOB_SAMPLES")
    return sorted(Path(directory).rglob("*.y*ml")) if directory else []
