# threat: T5
# tries: names that break lists, logs and terminals
# after: list
os.chdir("/workspace")
for name in (
    b"\n",
    b"a\nb",
    b"\x1b[31mred",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"x" * 255,
    b"-rf",
    b"$(id)",
    b"`id`",
    b"'",
    b'"',
    b"\\",
    b"{}",
    "\u202eexe.txt".encode(),
    "\u2028".encode(),
    b"\x7f",
    b"\x01\x02",
    b"<script>alert(1)<script>",
    b" ",
    b"...",
):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
os.symlink(b"\xff" * 100, b"link\n")
os.symlink("loop", "loop")
os.mkfifo("fifo\r")
print("END")
