# threat: T4
# tries: close all descriptors and go on
# outcome: error
# exit: 5
echo END
exec 0<&- 1>&- 2>&-
sleep 0.2
exit 5
