/** What the origins of write-back volumes do not have yet. */

import type { Volume } from "../model";
import { Card, Table } from "../parts";
import { bytes, span } from "../text";

export function Dirty(props: { volumes: Volume[] }) {
  const found = props.volumes.filter((volume) => volume.write_back !== null);
  if (found.length === 0) return null;
  return (
    <Card title="Dirty data">
      <Table label="Dirty data by volume" head={["Volume", "Dirty", "Oldest for", "Goes at", "Copies", "Order", "Devices of the log"]}>
        {found.map(({ name, write_back }) => {
          const log = write_back!;
          return (
            <tr key={name} class={log.copies < 2 || log.trouble ? "bad" : undefined}>
              <th scope="row">{name}</th>
              <td class="dirty">{bytes(log.dirty_bytes)}</td>
              <td class="lag">{log.dirty_bytes > 0 ? span(log.lag_s) : "–"}</td>
              <td>{log.rate_bytes ? `${bytes(log.rate_bytes)}/s` : "–"}</td>
              <td>{log.copies} of 2</td>
              <td>{log.order}</td>
              <td>{log.trouble ?? log.devices.join(", ")}</td>
            </tr>
          );
        })}
      </Table>
      <p class="muted note">
        The log holds what origins do not have yet, on each of its devices; so long, an origin alone is older than what
        clients wrote.
      </p>
    </Card>
  );
}
