//! Reading a profile, key by key.

use crate::prelude::*;

use super::{
    Draft, Fault, INITRAMFS_NAME, KERNEL_NAME, OutFormat, OutputKind, PayloadInput, Profile, ProfileError, SecureBoot,
    at,
    output::{disk_format, disk_format_options, disk_loader, iso_loader},
    refuse, unsupported,
};
use crate::{
    disk::meta::parse_key,
    kernel::{arch::Arch, platform::Platform},
    media::format::ImageKind,
    payload::image_ref::ImageRef,
    units::SectorSize,
    yaml::{self, Field, MAX_BYTES},
};

type Result<T> = core::result::Result<T, ProfileError>;

const KEYS: [&str; 10] = [
    "baseProfileName",
    "arch",
    "platform",
    "secureboot",
    "name",
    "version",
    "customization",
    "input",
    "overlay",
    "output",
];
const CUSTOMIZATION: [&str; 3] = ["extraKernelArgs", "metaContents", "embeddedMachineConfiguration"];
const INPUT: [&str; 9] = [
    "kernel",
    "initramfs",
    "sdStub",
    "sdBoot",
    "baseInstaller",
    "imageCache",
    "overlayInstaller",
    "secureboot",
    "systemExtensions",
];
const CONTAINER: [&str; 4] = ["imageRef", "forceInsecure", "tarballPath", "ociPath"];
const OUTPUT: [&str; 4] = ["kind", "imageOptions", "isoOptions", "outFormat"];
const IMAGE_OPTIONS: [&str; 6] =
    ["diskSize", "diskFormat", "diskFormatOptions", "diskSectorSize", "bootloader", "sdBootEnrollKeys"];
const ISO_OPTIONS: [&str; 2] = ["bootloader", "sdBootEnrollKeys"];

/// The profile, and notes on keys without effect.
pub fn profile(bytes: &[u8]) -> Result<(Profile, Vec<String>)> {
    let documents = yaml::documents(yaml::text(bytes)?)?;
    let mut roots = documents.iter().map(|document| Field::root(document));
    let Some(root) = roots.next() else {
        return Err(yaml::ConfigError::new(
            yaml::Pos { line: 1, column: 1 },
            "there is no profile; `imager --help` shows one",
        )
        .into());
    };
    if let Some(second) = roots.next() {
        return Err(second.wrong("a second document: a profile is a single one").into());
    }
    root.only(&KEYS)?;
    let base = root.get("baseProfileName")?;
    let mut draft = match &base {
        Some(base) => at(base, Draft::base(base.text()?))?,
        None => Draft::default(),
    };
    if let Some(arch) = root.get("arch")? {
        draft.arch = Some(at(&arch, arch_by_name(arch.text()?))?);
    }
    if let Some(platform) = root.get("platform")? {
        let known = Platform::by_name(platform.text()?).ok_or_else(|| {
            let names = Platform::names().collect::<Vec<_>>().join(", ");
            platform.wrong(format!("{:?} is not a known platform: {names}", platform.text().unwrap_or_default()))
        });
        draft.platform = Some(known?);
    }
    if let Some(signed) = root.boolean_of("secureboot")? {
        draft.secure_boot = signed.then(|| draft.secure_boot.take().unwrap_or_default());
    }
    refuse(&root, "overlay", "overlays are not supported")?;
    if let Some(field) = root.get("output")? {
        output(&field, &mut draft)?;
    }
    // After the output, because only an ISO brings keys for firmware, and only a unified kernel image has a stub.
    if let Some(field) = root.get("input")? {
        (draft.origin, draft.stub) = (input(&field)?, stub(&field, draft.has_uki())?);
        let enrolls = draft.brings_keys();
        match &mut draft.secure_boot {
            Some(signed) => *signed = SecureBoot::read(&field, enrolls)?,
            None => SecureBoot::none(&field)?,
        }
    }
    // After the output, because an ISO takes no META.
    if let Some(field) = root.get("customization")? {
        customization(&field, &mut draft)?;
    }
    let mut ignored = Vec::new();
    for (key, why) in
        [("name", "it would appear nowhere"), ("version", "the version is that of the payload's os-release")]
    {
        if let Some(field) = root.get(key)?.filter(|field| !field.asks_nothing()) {
            field.text()?;
            ignored.push(format!("{}: {}", field.at(), field.named(format!("ignored: {why}"))));
        }
    }
    match (draft.settle(), &base) {
        (Ok(profile), _) => Ok((profile, ignored)),
        // The profile's own keys were refused above, so the unsupported wish comes from its base.
        (Err(fault @ Fault::Unsupported(_)), Some(base)) => at(base, Err(fault)),
        (Err(fault), _) => at(&root, Err(fault)),
    }
}

fn arch_by_name(name: &str) -> core::result::Result<Arch, Fault> {
    let all = [Arch::Amd64, Arch::Arm64];
    let found = all.into_iter().find(|arch| arch.to_string() == name);
    found.ok_or_else(|| Fault::Wrong(format!("{name:?} is not a known architecture: amd64, arm64")))
}

fn customization(field: &Field, draft: &mut Draft) -> Result<()> {
    field.only(&CUSTOMIZATION)?;
    if let Some(args) = field.get("extraKernelArgs")? {
        draft.extra_kernel_args = args.texts()?;
    }
    if let Some(contents) = field.get("metaContents")? {
        at(&contents, draft.set_meta(meta(&contents)?))?;
    }
    refuse(
        field,
        "embeddedMachineConfiguration",
        "the initramfs is not changed: put the config into the payload, or name it by the kernel argument talos.config",
    )
}

fn meta(contents: &Field) -> Result<Vec<(u8, String)>> {
    let mut tags = Vec::new();
    // Aliases can expand a small document to a huge one, so count the expanded bytes.
    let mut bytes = 0;
    for item in contents.items()? {
        item.only(&["key", "value"])?;
        let key = item.get("key")?.ok_or_else(|| item.wrong("key is missing"))?;
        let tag = parse_key(key.text()?).map_err(|what| key.wrong(what))?;
        let value = item.get("value")?.map(|field| field.text()).transpose()?.unwrap_or_default();
        bytes += value.len();
        if bytes > MAX_BYTES {
            return Err(contents.wrong(format!("more than {MAX_BYTES} bytes")).into());
        }
        tags.push((tag, value.to_owned()));
    }
    Ok(tags)
}

fn input(field: &Field) -> Result<Option<PayloadInput>> {
    field.only(&INPUT)?;
    for (key, why) in [
        ("sdBoot", "disks boot with Slipway's own loader or with GRUB"),
        ("imageCache", "image caches are not supported"),
        ("overlayInstaller", "overlays are not supported"),
        ("systemExtensions", "the initramfs is not changed: extensions are part of the payload"),
    ] {
        refuse(field, key, why)?;
    }
    let files = directory(field)?;
    let image = match field.get("baseInstaller")? {
        Some(field) => container(&field)?.map(|origin| (origin, field)),
        None => None,
    };
    match (files, image) {
        (Some(_), Some((_, field))) => {
            Err(field.wrong("give the payload either here or by kernel and initramfs: drop one of the two").into())
        }
        (files, image) => Ok(files.or(image.map(|(origin, _)| origin))),
    }
}

/// The stub at the beginning of a unified kernel image.
fn stub(input: &Field, has_uki: bool) -> Result<Option<String>> {
    match file(input, "sdStub")? {
        Some(path) if !has_uki => {
            let why = "only a unified kernel image begins with a stub: write `secureboot: true`, or `kind: uki`";
            Err(path.wrong(why).into())
        }
        path => Ok(path.map(|path| path.text().map(str::to_owned)).transpose()?),
    }
}

/// The directory that holds both `kernel` and `initramfs`.
fn directory(input: &Field) -> Result<Option<PayloadInput>> {
    let (kernel, initramfs) = (file(input, "kernel")?, file(input, "initramfs")?);
    let (kernel, initramfs) = match (kernel, initramfs) {
        (None, None) => return Ok(None),
        (Some(kernel), Some(initramfs)) => (kernel, initramfs),
        (Some(one), None) => return Err(one.wrong("initramfs.path is missing beside it").into()),
        (None, Some(one)) => return Err(one.wrong("kernel.path is missing beside it").into()),
    };
    let dir = dir_of(&kernel, KERNEL_NAME)?;
    if dir_of(&initramfs, INITRAMFS_NAME)? != dir {
        let why = format!("a payload is one directory, but {KERNEL_NAME} is in another one, {dir}");
        return Err(unsupported(&initramfs, why));
    }
    Ok(Some(PayloadInput::Directory(dir)))
}

/// The `path` of a file asset. An empty path counts as none.
fn file<'n>(parent: &Field<'n>, key: &str) -> Result<Option<Field<'n>>> {
    let Some(asset) = parent.get(key)? else { return Ok(None) };
    asset.only(&["path"])?;
    let Some(path) = asset.get("path")? else { return Ok(None) };
    Ok(if path.text()?.is_empty() { None } else { Some(path) })
}

/// The directory of a file, which must have this name there.
fn dir_of(path: &Field, name: &str) -> Result<String> {
    let (dir, last) = path.text()?.rsplit_once('/').unwrap_or((".", path.text()?));
    if last != name {
        return Err(unsupported(path, format!("a payload is a directory in which this file is called {name}")));
    }
    Ok(match dir.trim_end_matches('/') {
        "" => "/".to_owned(),
        dir => dir.to_owned(),
    })
}

fn container(asset: &Field) -> Result<Option<PayloadInput>> {
    asset.only(&CONTAINER)?;
    let insecure = asset.boolean_of("forceInsecure")?.unwrap_or(false);
    let image = match asset.get("imageRef")?.filter(|field| !field.asks_nothing()) {
        Some(field) => {
            let name = field.text()?;
            let image = name.parse::<ImageRef>().map_err(|e| field.wrong(format_args!("{name:?}: {e}")))?;
            Some(PayloadInput::Registry { image, insecure })
        }
        None => None,
    };
    let layout = asset.text_of("ociPath")?.map(|path| PayloadInput::Layout(path.to_owned()));
    let archive = asset.text_of("tarballPath")?.map(|path| PayloadInput::Archive(path.to_owned()));
    let mut origins = [image, layout, archive].into_iter().flatten();
    let origin = origins.next();
    match origins.next() {
        Some(_) => Err(asset.wrong("give only one of imageRef, ociPath and tarballPath").into()),
        None => Ok(origin),
    }
}

fn output(field: &Field, draft: &mut Draft) -> Result<()> {
    field.only(&OUTPUT)?;
    if let Some(kind) = field.get("kind")? {
        let known = at(&kind, OutputKind::by_name(kind.text()?))?;
        at(&kind, known.product(None))?;
        draft.kind = Some(known);
    }
    if let Some(options) = field.get("imageOptions")? {
        image_options(&options, draft)?;
        let why = match draft.kind {
            Some(OutputKind::Iso) => Some("the output is an ISO, which has no disk in it: drop this"),
            Some(OutputKind::Uki) => Some("the output is a unified kernel image, which has no disk in it: drop this"),
            _ => None,
        };
        why.map_or(Ok(()), |why| no_effect(&options, &IMAGE_OPTIONS, why))?;
    }
    if let Some(options) = field.get("isoOptions")? {
        options.only(&ISO_OPTIONS)?;
        let signed = draft.secure_boot.is_some();
        loader(&options, draft, |name| iso_loader(name, signed))?;
        if draft.kind != Some(OutputKind::Iso) {
            no_effect(&options, &ISO_OPTIONS, "the output is not an ISO: drop this, or write `kind: iso`")?;
        }
    }
    if let Some(format) = field.get("outFormat")? {
        let known = at(&format, OutFormat::by_name(format.text()?))?;
        at(&format, known.compression())?;
        draft.out_format = Some(known);
    }
    Ok(())
}

/// Refuse options that are meant for another kind of output.
fn no_effect(options: &Field, keys: &[&str], why: &str) -> Result<()> {
    for key in keys {
        if let Some(field) = options.get(key)?.filter(|field| !field.asks_nothing()) {
            return Err(field.wrong(why).into());
        }
    }
    Ok(())
}

fn image_options(options: &Field, draft: &mut Draft) -> Result<()> {
    options.only(&IMAGE_OPTIONS)?;
    if let Some(size) = options.get("diskSize")? {
        let digits = size.text()?;
        let bytes = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let wrong = || size.wrong(format!("{digits:?} is not a number of bytes"));
        draft.disk_bytes = Some(bytes.ok_or_else(wrong)?);
    }
    if let Some(format) = options.get("diskFormat")? {
        draft.disk_format = Some(at(&format, disk_format(format.text()?))?);
    }
    if let Some(extra) = options.get("diskFormatOptions")?.filter(|field| !field.asks_nothing()) {
        let format = draft.disk_format.unwrap_or(ImageKind::Raw);
        at(&extra, disk_format_options(format, extra.text()?))?;
    }
    if let Some(size) = options.get("diskSectorSize")? {
        let sector = size.text()?.parse::<SectorSize>().map_err(|what| size.wrong(what))?;
        draft.sector = Some(sector);
    }
    draft.efi_loader = loader(options, draft, disk_loader)?.or(draft.efi_loader);
    Ok(())
}

/// Options that disk images and ISOs share: a boot loader, which enrols keys.
fn loader<T>(
    options: &Field,
    draft: &mut Draft,
    of: impl Fn(&str) -> core::result::Result<T, Fault>,
) -> Result<Option<T>> {
    if let Some(field) = options.get("sdBootEnrollKeys")?.filter(|field| !field.asks_nothing()) {
        at(&field, draft.set_enroll(field.text()?))?;
    }
    let field = options.get("bootloader")?.filter(|field| !field.asks_nothing());
    field.map(|field| at(&field, of(field.text()?))).transpose()
}
