/** What is not well with a daemon, and what to do about it. */

import type { Status } from "./model";

/** Of a device's rated endurance, in percent. */
const WEAR_HIGH = 90;

export interface Trouble {
  subject: string;
  what: string;
  remedy: string;
}

export function troubles(now: Status): Trouble[] {
  const found: Trouble[] = [];
  const add = (subject: string, what: string, remedy: string) => found.push({ subject, what, remedy });
  for (const volume of now.waiting) {
    add(`volume ${volume.name}`, `is not served yet: ${volume.why}`, "it is served by itself once that is mended");
  }
  for (const pool of now.pools) {
    for (const device of pool.devices) {
      if (device.state === "online") continue;
      const remedy = device.state.startsWith("ejected")
        ? `reads go to the origins meanwhile, and no data is lost; replace the device or its cable, then take it out of the pool and add it again under Pools`
        : "wait until it has left";
      add(`device ${device.name} of pool ${pool.name}`, `is ${device.state}`, remedy);
    }
    if (pool.devices.length === 0) {
      add(`pool ${pool.name}`, "has no device: every read goes to an origin", "add a device under Pools");
    }
  }
  for (const array of now.arrays) {
    if (array.inactive) add(`array ${array.name}`, `could not start: ${array.inactive}`, "bring its members back");
    else if (array.state === "degraded") {
      const lost = array.members.filter((member) => member.state !== "in sync");
      const names = lost.map((member) => member.device ?? `role ${member.role}`).join(", ");
      add(`array ${array.name}`, `is degraded: ${names}`, "bring the member back, or replace it under Pools");
    } else if (array.state === "failed") add(`array ${array.name}`, "has failed", array.down ?? "bring its members back");
    if (array.lost_bytes > 0) {
      add(`array ${array.name}`, `has lost ${array.lost_bytes} bytes`, "restore what lies there from a copy");
    }
  }
  for (const { name, wear } of now.devices) {
    if (wear && wear.used_percent > WEAR_HIGH) {
      const what = `has used ${wear.used_percent}% of its rated endurance`;
      add(`device ${name}`, what, "plan its replacement: a new device can be added before the old one is removed");
    }
  }
  return found;
}
