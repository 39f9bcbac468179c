"""A release that is small and complete: what hack/release.d/test-check has hack/release.d/check read. Each thing in it can be made
another one, while all else, digests and signatures too, is as it belongs to that."""

import base64
import copy
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile

VERSION = "0.1.0"
ARCHITECTURES = ("amd64", "arm64")
IMAGES = ("slipway", "slipway-fleet")
OCI = "application/vnd.oci.image"
NAME = "org.opencontainers.image.ref.name"
IN_TOTO = "application/vnd.in-toto+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
SIMPLE = "application/vnd.dev.cosign.simplesigning.v1+json"
PREDICATES = {"https://cyclonedx.org/bom": "cdx.json", "https://slsa.dev/provenance/v1": "provenance.json"}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Signer:
    """A key, by openssl. What it has signed it remembers: most of a release is the same each time."""

    def __init__(self, directory, key=None):
        self.key, self.public, self.directory, self.known = key or f"{directory}/key", f"{directory}/key.pub", directory, {}
        if not key:
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True)
        subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout", "-out", self.public], check=True)

    def sign(self, data):
        if data not in self.known:
            with open(f"{self.directory}/data", "wb") as file:
                file.write(data)
            command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.key, "-in", file.name]
            self.known[data] = base64.b64encode(subprocess.run(command, check=True, capture_output=True).stdout).decode()
        return self.known[data]


def write_list(directory, signer):
    """SHA256SUMS and its signature, of what is there."""
    text = ""
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".sig.tar") and not name.startswith("SHA256SUMS"):
            with open(f"{directory}/{name}", "rb") as file:
                text += f"{sha256(file.read())}  {name}\n"
    for name, content in {"SHA256SUMS": text, "SHA256SUMS.sig": signer.sign(text.encode()) + "\n"}.items():
        put(f"{directory}/{name}", content.encode())


def put(path, data):
    """In place of a file, which may have other names."""
    if os.path.exists(path):
        os.unlink(path)
    with open(path, "wb") as file:
        file.write(data)


def write_tar(path, files, mode="w", prefix="./"):
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


class Release:
    """A release in a directory. `changes` has functions by the names of what they change: each gets a document, or the files of an
    archive, and changes it in place or returns another one."""

    def __init__(self, directory, signer, changes):
        self.directory, self.signer, self.changes, self.blobs = directory, signer, dict(changes), {}
        os.makedirs(directory)
        self.indexes = {name: self.image(name) for name in IMAGES}
        for arch in ARCHITECTURES:
            self.archive(arch)
            for package in ("slipway", "slipwayd", "slipwayctl"):
                self.package(package, arch)
        self.manifests(self.indexes["slipway-fleet"])
        put(f"{directory}/slipway-{VERSION}-source.tar.zst", b"source")
        put(f"{directory}/RELEASE-NOTES.md", b"notes")
        write_list(directory, signer)
        if self.changes:
            raise KeyError(f"nothing of a release has this name: {sorted(self.changes)}")

    def changed(self, what, value):
        change = self.changes.pop(what, None)
        if not change:
            return value
        value = copy.deepcopy(value)
        other = change(value)
        return value if other is None else other

    def blob(self, kind, data):
        """A descriptor of what is in the layout from now on."""
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.blobs[f"blobs/sha256/{sha256(data)}"] = data
        return {"mediaType": kind, "digest": f"sha256:{sha256(data)}", "size": len(data)}

    def layout(self, what, listed, blobs):
        listed = self.changed(f"{what} list", listed)
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps({"schemaVersion": 2, "manifests": listed}).encode()}
        write_tar(f"{self.directory}/{what}", self.changed(f"{what} files", files | blobs))

    def image(self, name):
        self.blobs, images = {}, []
        for arch in ARCHITECTURES:
            layer = self.blob(f"{OCI}.layer.v1.tar", f"{name} for {arch}".encode())
            labels = {"Labels": {"org.opencontainers.image.version": VERSION}}
            config = self.changed(f"config {name} {arch}", {"architecture": arch, "os": "linux", "config": labels})
            manifest = {"schemaVersion": 2, "config": self.blob(f"{OCI}.config.v1+json", config), "layers": [layer]}
            images.append(self.blob(f"{OCI}.manifest.v1+json", manifest) | {"platform": {"architecture": arch, "os": "linux"}})
        images = self.changed(f"index {name}", images)
        index = self.blob(f"{OCI}.index.v1+json", {"schemaVersion": 2, "manifests": images})
        own, named = dict(self.blobs), [index | {"annotations": {NAME: VERSION}}]
        self.layout(f"{name}-{VERSION}.oci.tar", named, own)
        named.append(self.signature(name, index))
        for image in images[:2]:
            arch = image["platform"]["architecture"]
            plain = {key: image[key] for key in ("mediaType", "digest", "size")}
            about = self.documents(f"{name}-{VERSION}-image-{arch}", plain)
            listing = self.blob(f"{OCI}.index.v1+json", {"schemaVersion": 2, "manifests": about})
            named += [plain | {"annotations": {NAME: f"{VERSION}-{arch}"}}, *about]
            named.append(listing | {"annotations": {NAME: image["digest"].replace(":", "-")}})
        self.layout(f"{name}-{VERSION}.oci.sig.tar", named, {path: data for path, data in self.blobs.items() if path not in own})
        return index

    def signature(self, name, index):
        said = {"critical": {"identity": {}, "image": {"docker-manifest-digest": index["digest"]}, "type": "cosign container image signature"}}
        said = json.dumps(self.changed(f"signed {name}", said)).encode()
        signature = self.changed(f"signature {name}", self.signer.sign(said))
        layer = self.blob(SIMPLE, said) | {"annotations": {"dev.cosignproject.cosign/signature": signature}}
        manifest = {"schemaVersion": 2, "config": self.blob(f"{OCI}.config.v1+json", {}), "layers": [layer]}
        tag = f"{index['digest'].replace(':', '-')}.sig"
        return self.blob(f"{OCI}.manifest.v1+json", manifest) | {"annotations": {NAME: tag}}

    def documents(self, name, image):
        """SBOM and provenance as files, and of an image also as statements about it."""
        digest = image["digest"].removeprefix("sha256:")
        bom = {"metadata": {"component": {"version": VERSION, "hashes": [{"content": digest}]}}}
        commit = [{"digest": {"gitCommit": "0" * 40}}]
        built = {"buildDefinition": {"externalParameters": {"version": VERSION}, "resolvedDependencies": commit}}
        found = []
        for (kind, suffix), document in zip(PREDICATES.items(), (bom, built)):
            document = self.changed(f"{name}.{suffix}", document)
            put(f"{self.directory}/{name}.{suffix}", json.dumps(document).encode())
            statement = {"subject": [{"digest": {"sha256": digest}}], "predicateType": kind, "predicate": document}
            statement = json.dumps(self.changed(f"{name}.{suffix} statement", statement)).encode()
            encoded = b"DSSEv1 %d %s %d %s" % (len(IN_TOTO), IN_TOTO.encode(), len(statement), statement)
            signed = [{"sig": self.changed(f"{name}.{suffix} signature", self.signer.sign(encoded))}]
            envelope = {"payload": base64.b64encode(statement).decode(), "payloadType": IN_TOTO, "signatures": signed}
            layer = self.blob(BUNDLE, {"dsseEnvelope": envelope})
            manifest = {"schemaVersion": 2, "config": self.blob("application/vnd.oci.empty.v1+json", {}), "layers": [layer], "subject": image}
            found.append(self.blob(f"{OCI}.manifest.v1+json", manifest))
        return found

    def archive(self, arch):
        data = gzip.compress(f"programs for {arch}".encode(), mtime=0)
        put(f"{self.directory}/slipway-{VERSION}-linux-{arch}.tar.gz", data)
        self.documents(f"slipway-{VERSION}-linux-{arch}", {"digest": f"sha256:{sha256(data)}"})

    def package(self, package, arch):
        control = {"Package": package, "Version": VERSION, "Architecture": arch, "Maintainer": "Slipway <x@x>", "Description": "debian"}
        control = self.changed(f"control {package} {arch}", control)
        files = {"control": "".join(f"{key}: {value}\n" for key, value in control.items()).encode()}
        parts = {}
        for name, content in {"control.tar.gz": files, "data.tar.gz": {}}.items():
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w:gz") as tar:
                for path, data in content.items():
                    entry = tarfile.TarInfo(f"./{path}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
            parts[name] = file.getvalue()
        put(f"{self.directory}/{package}_{VERSION}_{arch}.deb", ar({"debian-binary": b"2.0\n"} | parts))

    def manifests(self, index):
        digest = index["digest"]
        text = self.changed("kustomization", f"images:\n- name: slipway-fleet\n  digest: {digest}\n")
        path = f"slipway-fleet-{VERSION}-manifests"
        write_tar(f"{self.directory}/{path}.tar.gz", {f"{path}/kustomization.yaml": text.encode()}, "w:gz", "")
        chart = self.changed("Chart", f"version: {VERSION}\nappVersion: {VERSION}\n")
        values = self.changed("values", f"image: registry.example/slipway-fleet@{digest}\n")
        files = {"slipway-fleet/Chart.yaml": chart.encode(), "slipway-fleet/values.yaml": values.encode()}
        write_tar(f"{self.directory}/slipway-fleet-{VERSION}.tgz", files, "w:gz", "")


def ar(members):
    """An archive of ar, such as a Debian package is."""
    data = b"!<arch>\n"
    for name, content in members.items():
        data += f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
    return data
