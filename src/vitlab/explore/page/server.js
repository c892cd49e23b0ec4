// Requests to the server of the page.

async function answer(response) {
  const found = await response.json().catch(() => ({ error: `the server returned status ${response.status}` }));
  if (!response.ok) throw new Error(found.error || `the server returned status ${response.status}`);
  return found;
}

export async function ask(address, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return answer(await fetch(address, options));
}

export async function upload(file) {
  return answer(await fetch("api/pictures", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file }));
}
