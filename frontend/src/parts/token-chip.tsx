/** A token as it stands in tables and charts, where only its text is known. */

import { visible } from "./tokens";

export function Token({
  text,
  role,
  position,
}: {
  text: string;
  role?: "query" | "key" | undefined;
  position?: number | null;
}) {
  return (
    <span class={`token ${role ?? ""}`}>
      <span class="token-text">{visible(text)}</span>
      {position !== null && position !== undefined && <span class="token-index">{position}</span>}
    </span>
  );
}
