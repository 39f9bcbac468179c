//! The OVF descriptor and manifest of an OVA (DMTF DSP0243 1.1.0).

use crate::prelude::*;

use crate::{digest::Sha256, kernel::arch::Arch};

/// 2 processors, 2 GiB of memory, the disk on a paravirtual SCSI controller, one network card. Users can change all of it
/// when they import the machine.
const HARDWARE: &str = r#"      <Item>
        <rasd:AllocationUnits>hertz * 10^6</rasd:AllocationUnits>
        <rasd:ElementName>2 processors</rasd:ElementName>
        <rasd:InstanceID>1</rasd:InstanceID>
        <rasd:ResourceType>3</rasd:ResourceType>
        <rasd:VirtualQuantity>2</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>
        <rasd:ElementName>2048 MiB of memory</rasd:ElementName>
        <rasd:InstanceID>2</rasd:InstanceID>
        <rasd:ResourceType>4</rasd:ResourceType>
        <rasd:VirtualQuantity>2048</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:Address>0</rasd:Address>
        <rasd:ElementName>SCSI controller</rasd:ElementName>
        <rasd:InstanceID>3</rasd:InstanceID>
        <rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>
        <rasd:ResourceType>6</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>0</rasd:AddressOnParent>
        <rasd:ElementName>Disk 1</rasd:ElementName>
        <rasd:HostResource>ovf:/disk/disk1</rasd:HostResource>
        <rasd:InstanceID>4</rasd:InstanceID>
        <rasd:Parent>3</rasd:Parent>
        <rasd:ResourceType>17</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>7</rasd:AddressOnParent>
        <rasd:AutomaticAllocation>true</rasd:AutomaticAllocation>
        <rasd:Connection>VM Network</rasd:Connection>
        <rasd:ElementName>Network card</rasd:ElementName>
        <rasd:InstanceID>5</rasd:InstanceID>
        <rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>
        <rasd:ResourceType>10</rasd:ResourceType>
      </Item>
"#;

/// VMware's words for it, which others read, too: OVF has none.
const FIRMWARE: &str = "      <vmw:Config ovf:required=\"false\" vmw:key=\"firmware\" vmw:value=\"efi\"/>\n";

/// A virtual machine to be described; sizes are bytes.
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Ovf<'a> {
    /// Name of the machine and of the files in the archive.
    pub name: &'a str,
    pub disk_file: &'a str,
    pub file_bytes: u64,
    pub disk_bytes: u64,
    pub arch: Arch,
    /// Only UEFI may start it. Where nothing says so, a machine gets a BIOS, and that verifies no signature.
    pub efi: bool,
}

impl Ovf<'_> {
    /// The descriptor as XML.
    pub fn render(&self) -> String {
        let Ovf { file_bytes, disk_bytes, .. } = self;
        let (name, disk_file) = (escaped(self.name), escaped(self.disk_file));
        // CIM_OperatingSystem.OSType 101 means 64-bit Linux. vmw:osType is VMware's own name for it.
        let os_type = match self.arch {
            Arch::Amd64 => "other5xLinux64Guest",
            Arch::Arm64 => "arm-other5xLinux64Guest",
        };
        let firmware = if self.efi { FIRMWARE } else { "" };
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
  <References>
    <File ovf:id="file1" ovf:href="{disk_file}" ovf:size="{file_bytes}"/>
  </References>
  <DiskSection>
    <Info>Virtual disks</Info>
    <Disk ovf:diskId="disk1" ovf:fileRef="file1" ovf:capacity="{disk_bytes}" ovf:capacityAllocationUnits="byte" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="VM Network">
      <Description>The network of the machine</Description>
    </Network>
  </NetworkSection>
  <VirtualSystem ovf:id="{name}">
    <Info>A virtual machine</Info>
    <Name>{name}</Name>
    <OperatingSystemSection ovf:id="101" vmw:osType="{os_type}">
      <Info>The operating system</Info>
    </OperatingSystemSection>
    <VirtualHardwareSection>
      <Info>Virtual hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>{name}</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>vmx-15</vssd:VirtualSystemType>
      </System>
{HARDWARE}{firmware}    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>
"#
        )
    }
}

/// The OVF manifest: a checksum line per file.
pub fn manifest(files: &[(&str, Sha256)]) -> String {
    files.iter().map(|(name, sha256)| format!("SHA256({name})= {sha256}\n")).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
