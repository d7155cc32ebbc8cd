// Hands a cell's trace to Perfetto's page, where a reader asks for that and a server sends this page: of files a page
// may read none. https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
document.documentElement.classList.toggle("served", location.protocol.startsWith("http"));
// Milliseconds between two calls, and before the page there is given up.
page.patience = {call: 100, most: 60000};

// Resolved once the window's page answers; what is sent before that is lost. The call itself may reach any page.
page.answered = (other, origin) => new Promise((done, fail) => {
  const until = Date.now() + page.patience.most;
  const end = (settle, what) => { clearInterval(calls); removeEventListener("message", heard); settle(what); };
  const heard = event => { if (event.source === other && event.origin === origin && event.data === "PONG") end(done); };
  addEventListener("message", heard);
  const calls = setInterval(() => {
    if (other.closed) end(fail, new Error("Its window was closed before it had the trace."));
    else if (Date.now() > until) end(fail, new Error(`${origin} does not answer: is there a way to it from here?`));
    else other.postMessage("PING", "*");
  }, page.patience.call);
});
page.bytes = async address => {
  const answer = await fetch(address).catch(() => { throw new Error("The trace cannot be read: is this page's server still there?"); });
  if (!answer.ok) throw new Error(`The trace cannot be read: ${answer.status} ${answer.statusText}.`);
  return answer.arrayBuffer();
};
page.hand = async (button, said) => {
  // Before anything is waited for: browsers open a window for a reader's click, not for what comes of it later.
  const other = open(page.data.perfetto), origin = new URL(page.data.perfetto).origin, {trace, cell} = button.dataset;
  if (!other) throw new Error("The browser opened no window: allow this page to, and press again.");
  said.textContent = "Perfetto is being opened …";
  const bytes = page.bytes(trace).catch(error => { other.close(); throw error; });
  const [buffer] = await Promise.all([bytes, page.answered(other, origin)]);
  // To that site alone, whatever the window shows by now.
  other.postMessage({perfetto: {buffer, title: cell, fileName: trace.replaceAll("/", "-")}}, origin);
  said.textContent = "Perfetto has the trace.";
};
for (const button of document.querySelectorAll(".perfetto button")) button.addEventListener("click", async () => {
  const said = button.parentElement.querySelector("[role=status]");
  // Not disabled meanwhile, which would take the keyboard's focus away.
  if (button.ariaBusy === "true") return;
  button.ariaBusy = "true";
  try { await page.hand(button, said); } catch (error) { said.textContent = error.message; }
  button.ariaBusy = "false";
});
