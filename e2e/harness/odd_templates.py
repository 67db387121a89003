"""Jobs whose templates are odd but legal, as hypothesis strategies.

Every job drawn here is accepted by an API server and by Hajob. Odd is where containers, mounts and volumes stand in
their lists, how they are called, and which of the rarer fields of a Pod are used. Nothing names an object that would
have to exist, so that a pod is accepted by an empty cluster.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from hajob.api import constants as names
from hajob.api.base import Json

CHIPS: Final = 2
_WORDS: Final = st.sampled_from(["a", "b-1", "data", "hajob-data", "agent-1", "trainer-2", "installer", "x" * 63, "0"])
_TEXT: Final = st.sampled_from(
    ["", " ", "$(POD_IP)", "$$", "ü", "a b", "--x=1", 'he said "no"', "line\nline", "$HOME;"]
)
_PATHS: Final = st.sampled_from(["/a", "/data", "/data/deep", "/ckpt-2", "/dev/shm", "/ckp", "/hajob-2", "/var/run/x"])
_VARIABLES: Final = st.sampled_from(
    ["A", "a.b", "A-B", "MASTER_ADDR", "WORLD_SIZE", "HAJOB_DIR", "POD_IP", "LONG" * 20]
)
_QUANTITIES: Final = st.sampled_from([".5", "1", "500m", "1.5", "2e0", 1])
_TAINTS: Final = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "gpu", "value": "yes"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    ]
)
_SELECTOR: Final = st.sampled_from(
    [{}, {"matchLabels": {"a": "b"}}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
)
_EXPRESSION: Final = st.sampled_from(
    [
        {"key": "pool", "operator": "In", "values": ["a", "b"]},
        {"key": "pool", "operator": "DoesNotExist"},
        {"key": "size", "operator": "Gt", "values": ["3"]},
    ]
)
_FIELD: Final = st.sampled_from(
    [
        {"key": "metadata.name", "operator": "In", "values": ["node-1"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]},
    ]
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _with(required: Json, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return some(**fields).map(lambda drawn: {**required, **drawn})


def _unique(what: st.SearchStrategy[Json], key: str, most: int = 3) -> st.SearchStrategy[list[Json]]:
    return st.lists(what, max_size=most, unique_by=lambda one: str(one[key]))


_TERM: Final = some(matchExpressions=st.lists(_EXPRESSION, max_size=2), matchFields=st.lists(_FIELD, max_size=1))
_POD_TERM: Final = st.builds(
    lambda selector, key: {"labelSelector": selector, "topologyKey": key},
    _SELECTOR,
    st.sampled_from(["kubernetes.io/hostname", "zone"]),
)
_RULES: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_RATHER: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_AFFINITY: Final = some(
    **{
        _RULES: st.lists(_POD_TERM, max_size=2),
        _RATHER: st.lists(_POD_TERM.map(lambda term: {"weight": 1, "podAffinityTerm": term}), max_size=1),
    }
)
_AFFINITY: Final = some(
    nodeAffinity=some(
        **{
            _RULES: st.lists(_TERM, min_size=1, max_size=2).map(lambda terms: {"nodeSelectorTerms": terms}),
            _RATHER: st.lists(_TERM.map(lambda term: {"weight": 100, "preference": term}), max_size=1),
        }
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
_ENV: Final = st.lists(
    st.one_of(
        st.builds(lambda name, value: {"name": name, "value": value}, _VARIABLES, _TEXT),
        st.builds(lambda name: {"name": name}, _VARIABLES),
        st.builds(
            lambda name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}, _VARIABLES
        ),
        st.builds(
            lambda name: {"name": name, "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, _VARIABLES
        ),
        st.builds(
            lambda name: {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            _VARIABLES,
        ),
    ),
    max_size=4,
)
_RESOURCES: Final = some(requests=some(cpu=_QUANTITIES, memory=st.sampled_from(["1Gi", "1.5G", 1073741824])))
_PROBE: Final = st.sampled_from(
    [
        {"exec": {"command": ["true"]}},
        {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 1},
        {"tcpSocket": {"port": 80}, "initialDelaySeconds": 5},
    ]
)
_SECURITY: Final = some(
    runAsUser=st.sampled_from([0, 1000]),
    capabilities=st.just({"add": ["SYS_PTRACE"]}),
    readOnlyRootFilesystem=st.booleans(),
)
_COMMON: Final[dict[str, st.SearchStrategy[Any]]] = {
    "env": _ENV,
    "envFrom": st.just([{"prefix": "P_", "configMapRef": {"name": "c", "optional": True}}]),
    "imagePullPolicy": st.sampled_from(["Always", "Never", "IfNotPresent"]),
    "workingDir": st.sampled_from(["/", "/work dir"]),
    "securityContext": _SECURITY,
    "stdin": st.booleans(),
    "tty": st.booleans(),
    "terminationMessagePath": st.sampled_from(["/dev/termination-log", "/tmp/last word"]),
    "terminationMessagePolicy": st.sampled_from(["File", "FallbackToLogsOnError"]),
    "lifecycle": st.just({"preStop": {"exec": {"command": ["sync"]}}}),
    "readinessProbe": st.just({"exec": {"command": ["true"]}}),
    "ports": st.lists(
        st.sampled_from(
            [{"containerPort": 80, "name": "web"}, {"containerPort": 9090}, {"containerPort": 53, "protocol": "UDP"}]
        ),
        max_size=2,
        unique_by=lambda port: int(str(port["containerPort"])),
    ),
}
_MOUNTS: Final = st.lists(
    st.tuples(st.integers(0, 3), _PATHS, some(readOnly=st.booleans(), subPath=st.just("a/b"))),
    max_size=3,
    unique_by=lambda drawn: drawn[1],
)
_EXTRA_VOLUMES: Final[st.SearchStrategy[Json]] = st.sampled_from(
    [
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"configMap": {"name": "c", "optional": True, "items": [{"key": "k", "path": "p"}]}},
        {"secret": {"secretName": "s", "optional": True, "defaultMode": 256}},
        {"hostPath": {"path": "/x"}},
        {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"persistentVolumeClaim": {"claimName": "more", "readOnly": True}},
        {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            }
        },
    ]
)
_KEEPING_VOLUMES: Final[st.SearchStrategy[Json]] = st.sampled_from(
    [
        {"hostPath": {"path": "/mnt/shared", "type": "DirectoryOrCreate"}},
        {"persistentVolumeClaim": {"claimName": "checkpoints"}},
        {"nfs": {"server": "nfs.example.org", "path": "/"}},
        {"csi": {"driver": "nfs.csi.example.org", "volumeAttributes": {"share": "/"}}},
    ]
)
_POD_SECURITY: Final = some(
    runAsUser=st.sampled_from([0, 1000]),
    fsGroup=st.just(2000),
    supplementalGroups=st.just([1, 2]),
    seccompProfile=st.just({"type": "RuntimeDefault"}),
    sysctls=st.just([{"name": "kernel.shm_rmid_forced", "value": "1"}]),
)
_POD_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "affinity": _AFFINITY,
    "tolerations": st.lists(_TAINTS, max_size=3),
    "nodeSelector": st.sampled_from([{}, {"pool": "a"}]),
    "topologySpreadConstraints": st.just(
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]
    ),
    "hostAliases": st.just([{"ip": "10.0.0.1", "hostnames": ["h.example.org"]}]),
    "shareProcessNamespace": st.booleans(),
    "securityContext": _POD_SECURITY,
    "terminationGracePeriodSeconds": st.sampled_from([1, 30, 3600]),
    "imagePullSecrets": st.sampled_from([[], [{"name": "registry"}]]),
    "schedulerName": st.sampled_from(["default-scheduler", "nobody-runs-this"]),
    "enableServiceLinks": st.booleans(),
    "automountServiceAccountToken": st.just(False),
    "readinessGates": st.just([{"conditionType": "example.org/ready"}]),
    "subdomain": st.just("sub"),
    "setHostnameAsFQDN": st.just(False),
    "os": st.just({"name": "linux"}),
    "restartPolicy": st.just("Never"),
    "serviceAccountName": st.just("default"),
    "serviceAccount": st.just("default"),
    "schedulingGates": st.just([]),
    "resourceClaims": st.just([{"name": "nic", "resourceClaimName": "shared-nic"}]),
}
_NETWORK: Final[st.SearchStrategy[Json]] = st.sampled_from(
    [
        {},
        {"dnsPolicy": "Default"},
        {
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.0.0.53"], "options": [{"name": "ndots", "value": "1"}]},
        },
        {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
        {"hostPID": True, "hostIPC": True},
        {"hostUsers": True},
    ]
)


@st.composite
def containers(
    draw: st.DrawFn, taken: set[str], volumes: list[str], *, sidecar: bool = False, plain_init: bool = False
) -> Json:
    """A container beside the trainer, or an init container.

    Args:
        draw: of hypothesis.
        taken: names, to which its own is added.
        volumes: names of the volumes that it may mount.
        sidecar: it is an init container that goes on.
        plain_init: it is an init container that ends.
    """
    name = draw(_WORDS.filter(lambda word: word not in taken))
    taken.add(name)
    body: Json = {"name": name, "image": "i", **draw(some(**_COMMON))}
    if plain_init:
        body = {field: value for field, value in body.items() if field not in {"lifecycle", "readinessProbe"}}
    body |= draw(some(command=st.lists(_TEXT, max_size=2), args=st.lists(_TEXT, max_size=2), resources=_RESOURCES))
    if sidecar:
        body["restartPolicy"] = "Always"
        body |= draw(some(startupProbe=_PROBE, livenessProbe=_PROBE))
    if any(mentioned in str(body) for mentioned in ("'port': 'web'",)) and "web" not in str(body.get("ports")):
        body["ports"] = [{"containerPort": 80, "name": "web"}]
    return body | _mounted(draw, volumes)


def _mounted(draw: st.DrawFn, volumes: list[str]) -> Json:
    drawn = draw(_MOUNTS) if volumes else []
    mounts = [{"name": volumes[number % len(volumes)], "mountPath": path, **more} for number, path, more in drawn]
    return {"volumeMounts": mounts} if mounts else {}


@st.composite
def trainers(draw: st.DrawFn, volumes: list[str], *, claims: bool) -> Json:
    """The container that trains, with its checkpoint's mount anywhere among its mounts."""
    body: Json = {"name": "trainer", "image": "i", **draw(some(**_COMMON))}
    body["command"] = draw(st.lists(_TEXT, min_size=1, max_size=3))
    body |= draw(some(args=st.lists(_TEXT, max_size=2)))
    resources: Json = draw(_RESOURCES)
    if draw(st.booleans()):
        resources["limits"] = {names.DEFAULT_RESOURCE_NAME: draw(st.sampled_from([CHIPS, str(CHIPS)]))}
    if claims:
        resources["claims"] = [{"name": "nic"}]
    if resources:
        body["resources"] = resources
    mounts = _mounted(draw, volumes).get("volumeMounts", [])
    own: Json = {"name": "keeps", "mountPath": draw(st.sampled_from(["/ckpt", "/ckpt/", "/"]))}
    own |= draw(some(subPath=st.just("jobs/x"), mountPropagation=st.sampled_from(["None", "HostToContainer"])))
    if draw(st.booleans()) and "mountPropagation" in own:
        own["mountPropagation"] = "Bidirectional"
        body["securityContext"] = {"privileged": True}
    mounts.insert(draw(st.integers(0, len(mounts))), own)
    return body | {"volumeMounts": mounts}


@st.composite
def templates(draw: st.DrawFn) -> Json:
    """A pod template."""
    spec = draw(some(**_POD_FIELDS)) | draw(_NETWORK)
    if spec.get("hostPID"):  # with it, neither is legal
        spec.pop("shareProcessNamespace", None)
        spec.get("securityContext", {}).pop("sysctls", None)
    extra = draw(st.lists(st.tuples(_WORDS, _EXTRA_VOLUMES), max_size=3, unique_by=lambda pair: pair[0]))
    volumes = [{"name": name, **source} for name, source in extra]
    mountable = [name for name, _ in extra]
    volumes.insert(draw(st.integers(0, len(volumes))), {"name": "keeps", **draw(_KEEPING_VOLUMES)})
    taken = {"trainer"}
    going_on = draw(st.lists(st.booleans(), max_size=2))
    before = [draw(containers(taken, mountable, sidecar=each, plain_init=not each)) for each in going_on]
    beside = [draw(containers(taken, mountable)) for _ in range(draw(st.integers(0, 2)))]
    beside.insert(draw(st.integers(0, len(beside))), draw(trainers(mountable, claims="resourceClaims" in spec)))
    if spec.get("hostNetwork"):  # a port on the host is free once
        for each in beside:
            each.pop("ports", None)
    spec |= {"containers": beside, "volumes": volumes}
    if before:
        spec["initContainers"] = before
    metadata = draw(
        some(
            labels=st.sampled_from([{}, {"a": "b", names.LABEL_PLAIN_JOB_NAME: "mine"}]),
            annotations=st.sampled_from([{}, {"example.org/x": "ü\n"}]),
            creationTimestamp=st.none(),
        )
    )
    return {"spec": spec, **({"metadata": metadata} if metadata else {})}


_HOOKS: Final = st.builds(
    lambda first, rest, more: {"spec": {"containers": [first, *rest], **more}},
    _with({"name": "check", "image": "i"}, **_COMMON),
    st.sampled_from([[], [{"name": "more", "image": "i"}], [{"name": names.HOOK_CONTAINER, "image": "i"}]]),
    some(
        restartPolicy=st.sampled_from(["Always", "Never"]),
        tolerations=st.lists(_TAINTS, max_size=1),
        nodeSelector=st.just({"pool": "a"}),
        initContainers=st.just([{"name": "first", "image": "i"}]),
    ),
)


@st.composite
def jobs(draw: st.DrawFn, name: str = "odd") -> Json:
    """A HATrainingJob, without UID."""
    scheduling = draw(
        some(
            gangPolicy=st.sampled_from(["None", "SchedulingGates"]),
            numSpareNodes=st.integers(0, 1),
            spareMode=st.sampled_from(["Placeholder", "Warm"]),
            excludedNodeNames=st.sampled_from([[], ["node-9"]]),
        )
    )
    spec: Json = {
        "accelerator": {"product": "A2", "chipsPerNode": CHIPS},
        "numNodes": 4,
        "parallelism": {"tensor": 2},
        "checkpoint": {"path": draw(st.sampled_from(["/ckpt/jobs/x", "/ckpt", "/ckpt/"]))},
        "template": draw(templates()),
        "scheduling": scheduling,
    }
    if draw(st.booleans()):
        spec["pause"] = {"requestTime": "2026-11-22T22:00:00Z", "template": draw(_HOOKS)}
    spec |= draw(
        some(
            agent=st.just({"resources": {"requests": {"cpu": 1}}}),
            output=st.just({"path": "/ckpt/out"}),
            coordinator=st.just({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"pool": "services"}}),
        )
    )
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
