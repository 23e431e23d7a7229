import { expect, test } from "vitest";

import { Queue } from "../src/parts/queue";

test("never more at once than there are places, and each gets its turn", async () => {
  const queue = new Queue(2);
  let [now, most] = [0, 0];
  const work = async (): Promise<number> => {
    most = Math.max(most, ++now);
    await new Promise((resolve) => setTimeout(resolve, 2));
    return now--;
  };
  const answers = await Promise.all(Array.from({ length: 7 }, () => queue.add(work)));
  expect([answers.length, most, now]).toEqual([7, 2, 0]);
});

test("what is taken back before its turn never begins, and what fails leaves its place", async () => {
  const queue = new Queue(1);
  const stop = new AbortController();
  const first = queue.add(() => Promise.reject(new Error("no")));
  let began = false;
  const second = queue.add(async () => (began = true), stop.signal);
  const third = queue.add(async () => 3);
  stop.abort();
  await expect(first).rejects.toThrow("no");
  await expect(second).rejects.toThrow();
  expect(await third).toBe(3);
  expect(began).toBe(false);
});
