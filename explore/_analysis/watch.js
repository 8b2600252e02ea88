// What the page of `explore watch` does; TAG is the tag of what it shows first.

let tag = TAG;
const main = document.querySelector("main");
const notice = document.body.appendChild(document.createElement("p"));
notice.className = "notice";
notice.hidden = true;
notice.setAttribute("role", "status");

function show(text) {
  const open = [...main.querySelectorAll("details[open] figure")].map(one => one.id);
  const [x, y] = [scrollX, scrollY];
  main.innerHTML = text;
  for (const id of open) document.getElementById(id)?.closest("details")?.setAttribute("open", "");
  scrollTo(x, y);
}

async function ask() {
  let over = false;
  try {
    const answer = await fetch("/content", {headers: {"If-None-Match": tag}});
    if (answer.status === 200) {
      show(await answer.text());
      tag = answer.headers.get("ETag");
    }
    over = answer.headers.has("X-Run-Over");
    notice.hidden = true;
  } catch {
    notice.textContent = "explore watch does not answer any more; this is the last it said.";
    notice.hidden = false;
  }
  if (!over) setTimeout(ask, 2000);
}
setTimeout(ask, 2000);
