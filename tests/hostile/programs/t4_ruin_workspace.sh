# threat: T4
# tries: take /workspace away from the agent
# after: ruined
cd /
chmod 000 /workspace
rmdir /workspace; mv /workspace /w; rm -rf /workspace
ln -sfn /etc /workspace
mkdir -p /tmp/away
chmod 000 /tmp
echo END
