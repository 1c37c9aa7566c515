// One round through the npm SDK. Prints what came back as JSON; the test beside this file judges it.
"use strict";

const Cloudflare = require("cloudflare");

async function main(account_id, queue_name) {
  const { queues } = new Cloudflare(); // the URL and the token come from its own variables
  const seen = {};

  const { queue_id } = await queues.create({ account_id, queue_name });
  seen.listed = [];
  for await (const queue of queues.list({ account_id })) seen.listed.push(queue.queue_name);
  await queues.consumers.create(queue_id, { account_id, type: "http_pull" });

  const { messages } = queues;
  await messages.push(queue_id, { account_id, body: "one", content_type: "text" });
  await messages.bulkPush(queue_id, {
    account_id,
    messages: [
      { body: { two: 2 }, content_type: "json" },
      { body: "three", content_type: "text" },
    ],
  });
  const pulled = await messages.pull(queue_id, { account_id, batch_size: 10 });
  seen.bodies = pulled.messages.map((message) => message.body);
  const leases = pulled.messages.map(({ lease_id }) => ({ lease_id }));
  seen.settled = await messages.ack(queue_id, {
    account_id,
    acks: leases.slice(0, 2),
    retries: leases.slice(2),
  });
  const again = await messages.pull(queue_id, { account_id });
  seen.again = again.messages.map(({ body, attempts }) => ({ body, attempts }));
  seen.metrics = await queues.getMetrics(queue_id, { account_id });

  for (const worker_name of ["shop", "blog", "wiki"]) {
    await queues.subscriptions.create({
      account_id,
      name: worker_name,
      source: { type: "workersBuilds.worker", worker_name },
      destination: { type: "queues.queue", queue_id },
      events: ["build.started"],
    });
  }
  seen.subscriptions = [];
  for await (const one of queues.subscriptions.list({ account_id, per_page: 2 })) {
    if (one.destination.queue_id === queue_id) seen.subscriptions.push(one.name);
  }

  const deleted = await queues.delete(queue_id, { account_id });
  seen.deleted = deleted.success;
  seen.missing = await queues.get(queue_id, { account_id }).then(
    () => "still there",
    (error) => ({ kind: error.constructor.name, status: error.status, code: error.errors[0].code }),
  );
  console.log(JSON.stringify(seen));
}

main(...process.argv.slice(2));
